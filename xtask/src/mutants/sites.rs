//! Where a mutant can be made, and what it changes.
//!
//! | operator | what is left of the rule |
//! |---|---|
//! | the condition of an `if` or a match guard is taken for true | it always applies |
//! | the condition of an `if`, a `while` or a match guard is taken for false | it never applies |
//! | one part of a conjunction is taken for true, of a disjunction for false | that part is gone |
//! | `<` and `<=`, `>` and `>=`, `==` and `!=`, `+` and `-` change places | its edge is off by one |
//! | a call whose value nobody takes, or an assignment to a field, is left out | it is forgotten |
//! | a `return` or `continue` behind other statements, or as an arm, is left out | it goes on |
//!
//! Left alone are tests, constants, what is shown to people (`Display`, `Debug`), assertions (they
//! are macros), calls of `ignore` (they count a refusal and change nothing), and what asks for a
//! planted bug: that such a rule is guarded is proven by its trap.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Block, Expr, Stmt};

/// What a mutant does to the text of its site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A condition is taken for true.
    True,
    /// A condition, which may be one of `let`, is taken for false.
    False,
    /// A statement is left out.
    Gone,
    /// An arm's jump is left out.
    Falls,
    /// An operator between two operands becomes another.
    Swap {
        left: Range<usize>,
        right: Range<usize>,
        from: &'static str,
        to: &'static str,
    },
}

/// One mutant that can be made.
#[derive(Clone, Debug)]
pub(super) struct Site {
    /// Of the room; then `/` and so on. Relative to `crates/protocol/src`.
    pub(super) file: String,
    pub(super) line: usize,
    /// Its bytes in the file.
    pub(super) range: Range<usize>,
    pub(super) change: Change,
    /// File, function and change in words. Only another change of the same words in the same
    /// function adds a number, so that what is written elsewhere changes no key.
    pub(super) key: String,
}

/// The sites of one file, in the order of its text, outer ones first.
///
/// # Errors
/// One sentence, if the file is not Rust.
pub(super) fn of_file(file: &str, text: &str) -> Result<Vec<Site>, String> {
    let parsed = syn::parse_file(text).map_err(|error| format!("{file}: {error}"))?;
    let mut finder = Finder {
        file,
        text,
        function: String::new(),
        planted: BTreeSet::new(),
        jumps: false,
        repeated: BTreeMap::new(),
        sites: Vec::new(),
    };
    finder.visit_file(&parsed);
    // What keeps the whole text comes first: it can hold what takes it apart.
    let parts = |site: &Site| matches!(site.change, Change::Swap { .. });
    let mut sites = finder.sites;
    sites.sort_by_key(|s| (s.range.start, usize::MAX - s.range.end, parts(s)));
    Ok(sites)
}

/// Names that ask for a planted bug, whatever they are called on.
const PLANTED: [&str; 2] = ["Bug", "asks_no_session"];

struct Finder<'a> {
    file: &'a str,
    text: &'a str,
    function: String,
    /// Variables of the function that tell of a planted bug.
    planted: BTreeSet<String>,
    /// Whether this is the end of a `let … else`, which must jump.
    jumps: bool,
    repeated: BTreeMap<String, usize>,
    sites: Vec<Site>,
}

impl Finder<'_> {
    fn add(&mut self, spanned: &impl Spanned, change: Change) {
        let span = spanned.span();
        let range = span.byte_range();
        let text = self.text[range.clone()].split_whitespace();
        let text = text.collect::<Vec<_>>().join(" ");
        let words = match &change {
            Change::True => format!("`{text}` taken for true"),
            Change::False => format!("`{text}` taken for false"),
            Change::Gone | Change::Falls => format!("without `{text}`"),
            Change::Swap { from, to, .. } => format!("`{text}` with `{to}` for `{from}`"),
        };
        let mut key = format!("{} {}: {words}", self.file, self.function);
        let count = self.repeated.entry(key.clone()).or_default();
        *count += 1;
        if *count > 1 {
            key = format!("{key} ({count})");
        }
        self.sites.push(Site {
            file: self.file.to_owned(),
            line: span.start().line,
            range,
            change,
            key,
        });
    }

    /// Whether this asks for a planted bug, or names a variable that does.
    fn tells_planted(&self, spanned: &impl Spanned) -> bool {
        let text = &self.text[spanned.span().byte_range()];
        text.split(|c: char| !c.is_alphanumeric() && c != '_')
            .any(|word| PLANTED.contains(&word) || self.planted.contains(word))
    }

    fn condition(&mut self, condition: &Expr, is_loop: bool) {
        if self.tells_planted(condition) {
            return;
        }
        if !is_loop && !has_let(condition) {
            self.add(condition, Change::True);
        }
        self.add(condition, Change::False);
    }

    /// The operands of one conjunction or disjunction.
    fn part(&mut self, operand: &Expr, change: Change, parent: &BinOp) {
        let inner = matches!(operand, Expr::Binary(b) if same(&b.op, parent));
        if !inner && !has_let(operand) && !self.tells_planted(operand) {
            self.add(operand, change);
        }
    }

    fn in_function(&mut self, name: String, visit: impl FnOnce(&mut Self)) {
        let function = std::mem::replace(&mut self.function, name);
        let planted = std::mem::take(&mut self.planted);
        visit(self);
        self.function = function;
        self.planted = planted;
    }
}

/// Whether a condition binds names, so that it cannot be taken for true.
fn has_let(condition: &Expr) -> bool {
    match condition {
        Expr::Let(_) => true,
        Expr::Binary(b) => has_let(&b.left) || has_let(&b.right),
        _ => false,
    }
}

fn same(a: &BinOp, b: &BinOp) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b)
}

fn swapped(op: &BinOp) -> Option<(&'static str, &'static str)> {
    Some(match op {
        BinOp::Lt(_) => ("<", "<="),
        BinOp::Le(_) => ("<=", "<"),
        BinOp::Gt(_) => (">", ">="),
        BinOp::Ge(_) => (">=", ">"),
        BinOp::Eq(_) => ("==", "!="),
        BinOp::Ne(_) => ("!=", "=="),
        BinOp::Add(_) => ("+", "-"),
        BinOp::Sub(_) => ("-", "+"),
        BinOp::AddAssign(_) => ("+=", "-="),
        BinOp::SubAssign(_) => ("-=", "+="),
        _ => return None,
    })
}

/// Whether a statement can be left out: it is a call, or it assigns to what has a value already.
fn can_go(statement: &Expr) -> bool {
    match statement {
        Expr::MethodCall(call) => call.method != "ignore",
        Expr::Call(_) => true,
        Expr::Assign(assign) => match &*assign.left {
            // A room keeps there which bug is planted.
            Expr::Field(field) => {
                !matches!(&field.member, syn::Member::Named(name) if name == "planted")
            }
            Expr::Unary(_) | Expr::Index(_) => true,
            _ => false,
        },
        Expr::Binary(binary) => matches!(binary.op, BinOp::AddAssign(_) | BinOp::SubAssign(_)),
        _ => false,
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let tokens = attribute
            .meta
            .require_list()
            .map(|list| list.tokens.to_string());
        attribute.path().is_ident("cfg") && tokens.is_ok_and(|t| t.contains("test"))
    })
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}

    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let shown = item.trait_.as_ref().is_some_and(|of| {
            let text = &self.text[of.0.span().byte_range()];
            text.ends_with("Display") || text.ends_with("Debug")
        });
        if !shown && !is_test(&item.attrs) {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if item.sig.constness.is_none() && !is_test(&item.attrs) {
            let name = item.sig.ident.to_string();
            self.in_function(name, |finder| visit::visit_item_fn(finder, item));
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if item.sig.constness.is_none() && !is_test(&item.attrs) {
            let name = item.sig.ident.to_string();
            self.in_function(name, |finder| visit::visit_impl_item_fn(finder, item));
        }
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if local
            .init
            .as_ref()
            .is_some_and(|init| self.tells_planted(&init.expr))
            && let syn::Pat::Ident(name) = &local.pat
        {
            self.planted.insert(name.ident.to_string());
        }
        let Some(init) = &local.init else {
            return;
        };
        self.visit_expr(&init.expr);
        if let Some((_, other)) = &init.diverge {
            let jumps = std::mem::replace(&mut self.jumps, true);
            self.visit_expr(other);
            self.jumps = jumps;
        }
    }

    fn visit_expr_if(&mut self, expr: &'ast syn::ExprIf) {
        self.condition(&expr.cond, false);
        self.visit_expr(&expr.cond);
        let asked_alone = matches!(*expr.cond, Expr::MethodCall(_) | Expr::Path(_));
        if !(asked_alone && self.tells_planted(&expr.cond)) {
            self.visit_block(&expr.then_branch);
        }
        if let Some((_, other)) = &expr.else_branch {
            self.visit_expr(other);
        }
    }

    fn visit_expr_while(&mut self, expr: &'ast syn::ExprWhile) {
        self.condition(&expr.cond, true);
        visit::visit_expr_while(self, expr);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if let syn::Pat::Guard(guarded) = &arm.pat {
            if self.tells_planted(&guarded.guard) {
                return;
            }
            self.condition(&guarded.guard, false);
        }
        if matches!(*arm.body, Expr::Return(_) | Expr::Continue(_)) {
            self.add(&arm.body, Change::Falls);
        }
        visit::visit_arm(self, arm);
    }

    fn visit_expr_binary(&mut self, expr: &'ast syn::ExprBinary) {
        let part = match expr.op {
            BinOp::And(_) => Some(Change::True),
            BinOp::Or(_) => Some(Change::False),
            _ => None,
        };
        if let Some(change) = part {
            self.part(&expr.left, change.clone(), &expr.op);
            self.part(&expr.right, change, &expr.op);
        }
        if let Some((from, to)) = swapped(&expr.op).filter(|_| !self.tells_planted(expr)) {
            let (left, right) = (&expr.left, &expr.right);
            let change = Change::Swap {
                left: left.span().byte_range(),
                right: right.span().byte_range(),
                from,
                to,
            };
            self.add(expr, change);
        }
        visit::visit_expr_binary(self, expr);
    }

    fn visit_block(&mut self, block: &'ast Block) {
        for (index, statement) in block.stmts.iter().enumerate() {
            let Stmt::Expr(expr, end) = statement else {
                continue;
            };
            let jumps =
                matches!(expr, Expr::Return(_) | Expr::Continue(_)) && index > 0 && !self.jumps;
            if jumps || end.is_some() && can_go(expr) {
                self.add(statement, Change::Gone);
            }
        }
        visit::visit_block(self, block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(body: &str) -> Vec<String> {
        let sites = of_file("a.rs", &format!("fn f(&self) {{ {body} }}")).unwrap();
        let told = sites.into_iter().map(|site| site.key);
        told.map(|key| key.strip_prefix("a.rs f: ").unwrap().to_owned())
            .collect()
    }

    #[test]
    fn a_condition_its_parts_and_its_edge_are_sites() {
        assert_eq!(
            changes("if a < b && self.c() { return; }"),
            [
                "`a < b && self.c()` taken for true",
                "`a < b && self.c()` taken for false",
                "`a < b` taken for true",
                "`a < b` with `<=` for `<`",
                "`self.c()` taken for true",
            ]
        );
        assert_eq!(
            changes("while let Some(x) = y && x {}"),
            [
                "`let Some(x) = y && x` taken for false",
                "`x` taken for true",
            ]
        );
    }

    #[test]
    fn statements_are_sites_and_refusals_that_are_counted_are_not() {
        assert_eq!(
            changes("self.a(b); self.ignore(\"late\"); self.c = 1; self.planted = p; return;"),
            [
                "without `self.a(b);`",
                "without `self.c = 1;`",
                "without `return;`"
            ]
        );
        assert_eq!(changes("a(); a();")[1], "without `a();` (2)");
    }

    #[test]
    fn what_a_planted_bug_decides_is_no_site() {
        let asked = "let late = p.has(Bug::Late); if late { self.a(); } if !late && b { c = 1; }";
        assert_eq!(changes(asked), ["`b` taken for true"]);
    }
}
