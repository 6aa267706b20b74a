/* The evaluator: walks the syntax tree over two states. */

import edu.mit.csail.sdg.alloy4.Pos;
import edu.mit.csail.sdg.ast.Decl;
import edu.mit.csail.sdg.ast.Expr;
import edu.mit.csail.sdg.ast.ExprBinary;
import edu.mit.csail.sdg.ast.ExprCall;
import edu.mit.csail.sdg.ast.ExprConstant;
import edu.mit.csail.sdg.ast.ExprHasName;
import edu.mit.csail.sdg.ast.ExprITE;
import edu.mit.csail.sdg.ast.ExprLet;
import edu.mit.csail.sdg.ast.ExprList;
import edu.mit.csail.sdg.ast.ExprQt;
import edu.mit.csail.sdg.ast.ExprUnary;
import edu.mit.csail.sdg.ast.ExprVar;
import edu.mit.csail.sdg.ast.Func;
import edu.mit.csail.sdg.ast.Sig;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;

/** Evaluates the text over one state and the next. */
final class Judge {
    final Text text;
    final Map<Expr, Rel> fixed;
    final int atoms;
    final Rel[][] states = new Rel[2][];
    private Bound bound;
    private final Map<Expr, Object> constants = new IdentityHashMap<>();
    private final Map<Called, Object> always = new HashMap<>();
    private final List<Map<Called, Object>> now = List.of(new HashMap<>(), new HashMap<>());

    /** A bound variable, and those bound outside it. */
    record Bound(ExprVar name, Object value, Bound outer) {}

    record Called(Func func, List<Object> arguments) {}

    Judge(Text text, Map<Expr, Rel> fixed, int atoms) {
        this.text = text;
        this.fixed = fixed;
        this.atoms = atoms;
    }

    void begin(Rel[] state) {
        states[0] = state;
        states[1] = null;
        now.forEach(Map::clear);
    }

    void next(Rel[] state) {
        states[1] = state;
        now.get(1).clear();
    }

    /** The next state is the present one. */
    void advance() {
        begin(states[1]);
    }

    boolean holds(Expr formula) {
        return (Boolean) eval(formula, 0);
    }

    boolean call(Func func, List<Rel> arguments) {
        return (Boolean) inside(func, new ArrayList<Object>(arguments), 0);
    }

    /** The first part of a predicate that does not hold, as it is written. */
    String blame(Func func, List<Rel> arguments) {
        Bound outer = bound;
        bound = null;
        for (int i = 0; i < arguments.size(); i++) {
            bound = new Bound(func.get(i), arguments.get(i), bound);
        }
        String found = "";
        for (Expr part : Text.conjuncts(func.getBody())) {
            if (!(Boolean) eval(part, 0)) {
                found = ": not `" + source(part) + "` (" + Text.where(part) + ")";
                break;
            }
        }
        bound = outer;
        return found;
    }

    private static String source(Expr expr) {
        Pos pos = expr.span();
        try {
            List<String> lines = Files.readAllLines(Path.of(pos.filename)).subList(pos.y - 1, pos.y2);
            String all = String.join(" ", lines).trim().replaceAll(" +", " ");
            return all.length() > 160 ? all.substring(0, 160) + " …" : all;
        } catch (IOException error) {
            return expr.toString();
        }
    }

    private Object inside(Func func, List<Object> arguments, int at) {
        Deps deps = text.of(func);
        boolean keeps = !deps.next;
        Called called = keeps ? new Called(func, arguments) : null;
        Map<Called, Object> known = deps.isFixed() ? always : now.get(at);
        Object result = keeps ? known.get(called) : null;
        if (result == null) {
            Bound outer = bound;
            bound = null;
            for (int i = 0; i < arguments.size(); i++) {
                bound = new Bound(func.get(i), arguments.get(i), bound);
            }
            result = eval(func.getBody(), at);
            bound = outer;
            if (keeps) {
                known.put(called, result);
            }
        }
        return result;
    }

    private Rel rel(Expr expr, int at) {
        return (Rel) eval(expr, at);
    }

    private boolean is(Expr expr, int at) {
        return (Boolean) eval(expr, at);
    }

    private Object eval(Expr expr, int at) {
        if (expr instanceof ExprVar name) {
            return value(name);
        }
        if (expr instanceof Sig || expr instanceof Sig.Field) {
            return known(expr, at);
        }
        Deps deps = text.of(expr);
        boolean constant = deps.isFixed() && !deps.free && expr instanceof ExprUnary;
        Object result = constant ? constants.get(expr) : null;
        if (result == null) {
            result = fresh(expr, at);
            if (constant) {
                constants.put(expr, result);
            }
        }
        return result;
    }

    private Object value(ExprVar name) {
        for (Bound b = bound; b != null; b = b.outer) {
            if (b.name == name) {
                return b.value;
            }
        }
        throw new IllegalArgumentException("nothing is bound to " + name);
    }

    private Rel known(Expr what, int at) {
        Integer variable = text.vars.get(what);
        Rel value = variable == null ? fixed.get(what) : states[at][variable];
        if (value == null) {
            throw new IllegalArgumentException("nothing is known of " + what);
        }
        return value;
    }

    private Object fresh(Expr expr, int at) {
        if (expr instanceof ExprUnary unary) {
            return unary(unary, at);
        } else if (expr instanceof ExprBinary binary) {
            return binary(binary, at);
        } else if (expr instanceof ExprList list) {
            return list(list, at);
        } else if (expr instanceof ExprITE ite) {
            return eval(is(ite.cond, at) ? ite.left : ite.right, at);
        } else if (expr instanceof ExprLet let) {
            Bound outer = bound;
            bound = new Bound(let.var, eval(let.expr, at), outer);
            Object result = eval(let.sub, at);
            bound = outer;
            return result;
        } else if (expr instanceof ExprCall call) {
            List<Object> arguments = new ArrayList<>();
            call.args.forEach(argument -> arguments.add(eval(argument, at)));
            return inside(call.fun, arguments, at);
        } else if (expr instanceof ExprQt quantified) {
            return quantified(quantified, at);
        } else if (expr instanceof ExprConstant constant) {
            return switch (constant.op) {
                case TRUE -> true;
                case FALSE -> false;
                case EMPTYNESS -> Rel.none(1, atoms);
                default -> throw Text.unknown(expr);
            };
        }
        throw Text.unknown(expr);
    }

    private Object unary(ExprUnary e, int at) {
        return switch (e.op) {
            case NOOP, ONEOF, SOMEOF, LONEOF, SETOF, EXACTLYOF -> eval(e.sub, at);
            case NOT -> !is(e.sub, at);
            case NO -> rel(e.sub, at).isEmpty();
            case SOME -> !rel(e.sub, at).isEmpty();
            case LONE -> rel(e.sub, at).count() <= 1;
            case ONE -> rel(e.sub, at).count() == 1;
            case PRIME, AFTER -> eval(e.sub, at + 1);
            case TRANSPOSE -> rel(e.sub, at).transposed();
            case CLOSURE -> rel(e.sub, at).closure();
            default -> throw Text.unknown(e);
        };
    }

    private Object binary(ExprBinary e, int at) {
        return switch (e.op) {
            case AND -> is(e.left, at) && is(e.right, at);
            case OR -> is(e.left, at) || is(e.right, at);
            case IMPLIES -> !is(e.left, at) || is(e.right, at);
            case IFF -> is(e.left, at) == is(e.right, at);
            case EQUALS -> same(e, at);
            case NOT_EQUALS -> !same(e, at);
            case IN -> rel(e.left, at).in(rel(e.right, at));
            case NOT_IN -> !rel(e.left, at).in(rel(e.right, at));
            case PLUS -> rel(e.left, at).with(rel(e.right, at), Rel.Set.PLUS);
            case MINUS -> rel(e.left, at).with(rel(e.right, at), Rel.Set.MINUS);
            case INTERSECT -> rel(e.left, at).with(rel(e.right, at), Rel.Set.AND);
            case JOIN -> rel(e.left, at).join(rel(e.right, at));
            case ARROW -> rel(e.left, at).times(rel(e.right, at), atoms);
            case PLUSPLUS -> rel(e.left, at).overridden(rel(e.right, at));
            case DOMAIN -> rel(e.right, at).restricted(rel(e.left, at));
            case RANGE -> rel(e.left, at).to(rel(e.right, at));
            default -> throw Text.unknown(e);
        };
    }

    private boolean same(ExprBinary e, int at) {
        Rel left = rel(e.left, at);
        Rel right = rel(e.right, at);
        // Nothing is nothing, whatever its arity.
        return left.arity == right.arity ? left.equals(right) : left.isEmpty() && right.isEmpty();
    }

    private boolean list(ExprList e, int at) {
        switch (e.op) {
            case AND -> {
                for (Expr part : e.args) {
                    if (!is(part, at)) {
                        return false;
                    }
                }
                return true;
            }
            case OR -> {
                for (Expr part : e.args) {
                    if (is(part, at)) {
                        return true;
                    }
                }
                return false;
            }
            default -> throw Text.unknown(e);
        }
    }

    private Object quantified(ExprQt e, int at) {
        List<ExprVar> names = new ArrayList<>();
        List<Expr> domains = new ArrayList<>();
        for (Decl decl : e.decls) {
            for (ExprHasName name : decl.names) {
                names.add((ExprVar) name);
                domains.add(decl.expr);
            }
        }
        if (e.op == ExprQt.Op.COMPREHENSION) {
            return comprehension(names, domains, 0, e.sub, at);
        }
        int most = switch (e.op) {
            case ALL, NO, SOME -> 1;
            case LONE, ONE -> 2;
            default -> throw Text.unknown(e);
        };
        // How many make the body true, or, for `all`, false.
        boolean wanted = e.op != ExprQt.Op.ALL;
        int count = count(names, domains, 0, e.sub, at, wanted, most);
        return switch (e.op) {
            case ALL, NO -> count == 0;
            case SOME -> count > 0;
            case LONE -> count <= 1;
            default -> count == 1;
        };
    }

    private int count(List<ExprVar> names, List<Expr> domains, int index, Expr body, int at,
            boolean wanted, int most) {
        if (index == names.size()) {
            return is(body, at) == wanted ? 1 : 0;
        }
        BitSet domain = rel(domains.get(index), at).set;
        Bound outer = bound;
        int found = 0;
        for (int i = domain.nextSetBit(0); i >= 0 && found < most; i = domain.nextSetBit(i + 1)) {
            bound = new Bound(names.get(index), Case.singleton(i), outer);
            found += count(names, domains, index + 1, body, at, wanted, most - found);
        }
        bound = outer;
        return found;
    }

    private Rel comprehension(List<ExprVar> names, List<Expr> domains, int index, Expr body, int at) {
        BitSet domain = rel(domains.get(index), at).set;
        boolean last = index + 1 == names.size();
        Rel result = Rel.none(names.size() - index, atoms);
        Bound outer = bound;
        for (int i = domain.nextSetBit(0); i >= 0; i = domain.nextSetBit(i + 1)) {
            bound = new Bound(names.get(index), Case.singleton(i), outer);
            if (!last) {
                result.rows[i] = comprehension(names, domains, index + 1, body, at);
            } else if (is(body, at)) {
                result.set.set(i);
            }
        }
        bound = outer;
        return result;
    }
}
