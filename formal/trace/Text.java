/* The model as Alloy has parsed it: its predicates and facts, and what may change. */

import edu.mit.csail.sdg.alloy4.A4Reporter;
import edu.mit.csail.sdg.alloy4.Pos;
import edu.mit.csail.sdg.ast.Expr;
import edu.mit.csail.sdg.ast.ExprBinary;
import edu.mit.csail.sdg.ast.ExprCall;
import edu.mit.csail.sdg.ast.ExprConstant;
import edu.mit.csail.sdg.ast.ExprITE;
import edu.mit.csail.sdg.ast.ExprLet;
import edu.mit.csail.sdg.ast.ExprList;
import edu.mit.csail.sdg.ast.ExprQt;
import edu.mit.csail.sdg.ast.ExprUnary;
import edu.mit.csail.sdg.ast.ExprVar;
import edu.mit.csail.sdg.ast.Func;
import edu.mit.csail.sdg.ast.Module;
import edu.mit.csail.sdg.ast.Sig;
import edu.mit.csail.sdg.parser.CompModule;
import edu.mit.csail.sdg.parser.CompUtil;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The model, parsed. */
final class Text {
    final CompModule world;
    final Map<String, Func> predicates = new HashMap<>();
    final Map<String, Sig> sigs = new LinkedHashMap<>();
    final Map<String, Sig.Field> fields = new LinkedHashMap<>();
    final List<Expr> facts = new ArrayList<>();
    /** The conjuncts of the invariant. */
    final Map<String, Func> conjuncts = new LinkedHashMap<>();
    /** The cases of each event that the text names: its predicates EVENT_case. */
    final Map<String, List<Func>> cases = new LinkedHashMap<>();
    /** Everything that may change, numbered. */
    final Map<Expr, Integer> vars = new IdentityHashMap<>();
    final List<String> varNames = new ArrayList<>();
    final Map<Expr, Deps> deps = new IdentityHashMap<>();
    final Map<Func, Deps> bodies = new IdentityHashMap<>();

    Text(String file) throws Exception {
        world = CompUtil.parseEverything_fromFile(A4Reporter.NOP, null, file);
        for (Module module : world.getAllReachableModules()) {
            if (isLibrary((CompModule) module)) {
                continue;
            }
            for (Func func : module.getAllFunc()) {
                String name = last(func.label);
                predicates.put(name, func);
                int event = name.indexOf('_');
                if (event > 0) {
                    cases.computeIfAbsent(name.substring(0, event), k -> new ArrayList<>()).add(func);
                }
            }
            for (edu.mit.csail.sdg.alloy4.Pair<String, Expr> fact : module.getAllFacts()) {
                facts.add(fact.b);
            }
        }
        for (Sig sig : world.getAllReachableSigs()) {
            String name = sig.label.endsWith("/Ord") ? lastTwo(sig.label) : last(sig.label);
            sigs.put(name, sig);
            if (sig.isVariable != null) {
                var(sig, name);
            }
            for (Sig.Field field : sig.getFields()) {
                String full = sig.label.endsWith("/Ord") ? name + "." + field.label : field.label;
                fields.put(full, field);
                if (field.isVariable != null) {
                    var(field, full);
                }
            }
        }
        conjunctsOf(predicates.get("invariant").getBody());
    }

    private void var(Expr what, String name) {
        vars.put(what, varNames.size());
        varNames.add(name);
    }

    private void conjunctsOf(Expr body) {
        for (Expr part : conjuncts(body)) {
            Expr bare = part.deNOP();
            if (!(bare instanceof ExprCall call) || !call.args.isEmpty()) {
                throw new IllegalArgumentException("the invariant is a list of named conjuncts");
            }
            Expr inner = call.fun.getBody();
            boolean list = conjuncts(inner).stream().allMatch(e -> e.deNOP() instanceof ExprCall c
                    && c.args.isEmpty());
            if (list) {
                conjunctsOf(inner);
            } else {
                conjuncts.put(last(call.fun.label), call.fun);
            }
        }
    }

    /** Alloy's own modules, which are part of its jar. */
    private static boolean isLibrary(CompModule module) {
        return module.pos().filename.replace('\\', '/').contains("/util/");
    }

    /**
     * The events of the rules in force: what the model's `someEvent` names, without those of the
     * published algorithm. `learn` is one of both, and moves what that algorithm alone looks at.
     */
    List<String> events() {
        List<String> events = new ArrayList<>();
        calls(predicates.get("someEvent").getBody(), events);
        events.removeIf(name -> name.equals("learn")
                || conjuncts(predicates.get(name).getBody()).stream().anyMatch(Text::isPublished));
        return events;
    }

    private static boolean isPublished(Expr conjunct) {
        return conjunct instanceof ExprUnary not && not.op == ExprUnary.Op.NOT
                && not.sub.deNOP() instanceof ExprCall call && last(call.fun.label).equals("on")
                && call.args.get(0).toString().endsWith("FlagInLog");
    }

    private static void calls(Expr expr, List<String> into) {
        Expr bare = expr.deNOP();
        if (bare instanceof ExprCall call) {
            into.add(last(call.fun.label));
        } else if (bare instanceof ExprList list) {
            list.args.forEach(part -> calls(part, into));
        } else if (bare instanceof ExprBinary binary) {
            calls(binary.left, into);
            calls(binary.right, into);
        } else if (bare instanceof ExprQt quantified) {
            calls(quantified.sub, into);
        }
    }

    static String last(String label) {
        return label.substring(label.lastIndexOf('/') + 1);
    }

    static String lastTwo(String label) {
        int end = label.lastIndexOf('/');
        return label.substring(label.lastIndexOf('/', end - 1) + 1);
    }

    /** The parts of a conjunction. */
    static List<Expr> conjuncts(Expr expr) {
        List<Expr> parts = new ArrayList<>();
        Expr bare = expr.deNOP();
        if (bare instanceof ExprList list && list.op == ExprList.Op.AND) {
            list.args.forEach(part -> parts.addAll(conjuncts(part)));
        } else if (bare instanceof ExprBinary b && b.op == ExprBinary.Op.AND) {
            parts.addAll(conjuncts(b.left));
            parts.addAll(conjuncts(b.right));
        } else {
            parts.add(bare);
        }
        return parts;
    }

    /** What the value of an expression depends on. */
    Deps of(Expr expr) {
        Deps known = deps.get(expr);
        if (known == null) {
            known = new Deps();
            collect(expr, known);
            deps.put(expr, known);
        }
        return known;
    }

    Deps of(Func func) {
        Deps known = bodies.get(func);
        if (known == null) {
            known = new Deps();
            bodies.put(func, known);
            collect(func.getBody(), known);
        }
        return known;
    }

    private void collect(Expr expr, Deps into) {
        if (expr instanceof Sig || expr instanceof Sig.Field) {
            Integer number = vars.get(expr);
            if (number != null) {
                into.vars.set(number);
            }
        } else if (expr instanceof ExprVar) {
            into.free = true;
        } else if (expr instanceof ExprUnary unary) {
            into.next |= unary.op == ExprUnary.Op.PRIME || unary.op == ExprUnary.Op.AFTER;
            into.add(of(unary.sub));
        } else if (expr instanceof ExprBinary binary) {
            into.add(of(binary.left));
            into.add(of(binary.right));
        } else if (expr instanceof ExprList list) {
            list.args.forEach(part -> into.add(of(part)));
        } else if (expr instanceof ExprITE ite) {
            into.add(of(ite.cond));
            into.add(of(ite.left));
            into.add(of(ite.right));
        } else if (expr instanceof ExprQt quantified) {
            quantified.decls.forEach(decl -> into.add(of(decl.expr)));
            into.add(of(quantified.sub));
        } else if (expr instanceof ExprLet let) {
            into.add(of(let.expr));
            into.add(of(let.sub));
        } else if (expr instanceof ExprCall call) {
            call.args.forEach(part -> into.add(of(part)));
            Deps body = of(call.fun);
            into.vars.or(body.vars);
            into.next |= body.next;
        } else if (!(expr instanceof ExprConstant)) {
            throw unknown(expr);
        }
    }

    static UnsupportedOperationException unknown(Expr expr) {
        return new UnsupportedOperationException(
                "the evaluator does not know " + expr.getClass().getSimpleName() + ": " + expr);
    }

    static String where(Expr expr) {
        Pos pos = expr.span();
        return Text.last(pos.filename) + " line " + pos.y;
    }
}
