/*
 * Judges traces of the simulator by the text of the model.
 *
 *   java -cp ALLOY.jar Validate.java MODEL.als TRACES.txt...
 *
 * Problem. A model says something of the code only as long as the code does what the model says. A
 * second copy of the events in another language would be one more thing that can drift.
 *
 * Idea. The events are read by Alloy's own parser, from the text that is checked. A trace names an
 * event and its arguments for every step, and what has changed. Here is evaluated, for every step,
 * that the named predicate holds of the two states: what must hold before, what changes, and that
 * all else stays. The first state must satisfy `init`, every state the `invariant`, and the atoms the
 * facts. Nothing is searched for.
 *
 * How. Alloy's evaluator takes milliseconds for what takes microseconds here: it builds a solution
 * for each pair of states. So the syntax tree is walked by a small evaluator of our own (Judge),
 * which knows the operators that the model uses and refuses any other. Against a mistake in it,
 * every step of a sample, and every step that it refuses, is put to Alloy's evaluator, too; if the
 * two differ, that is a failure of its own.
 *
 * The format of a trace is that of crates/sim/src/model/text.rs.
 */

import edu.mit.csail.sdg.alloy4.A4Reporter;
import edu.mit.csail.sdg.alloy4.ConstList;
import edu.mit.csail.sdg.alloy4.Pos;
import edu.mit.csail.sdg.alloy4.XMLNode;
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
import edu.mit.csail.sdg.ast.Module;
import edu.mit.csail.sdg.ast.Sig;
import edu.mit.csail.sdg.parser.CompModule;
import edu.mit.csail.sdg.parser.CompUtil;
import edu.mit.csail.sdg.translator.A4Solution;
import edu.mit.csail.sdg.translator.A4SolutionReader;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.StringReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

public class Validate {
    /** Steps between two that are put to Alloy's evaluator as well. */
    static final int SAMPLE = 2_000;

    public static void main(String[] arguments) throws Exception {
        if (arguments.length < 2) {
            System.err.println("usage: Validate MODEL.als TRACES...");
            System.exit(2);
        }
        Text text = new Text(arguments[0]);
        Totals totals = new Totals();
        for (int i = 1; i < arguments.length; i++) {
            try (BufferedReader lines = Files.newBufferedReader(Path.of(arguments[i]))) {
                for (Trace trace = Trace.read(lines); trace != null; trace = Trace.read(lines)) {
                    new Case(text, trace, totals).judge();
                }
            }
        }
        totals.print();
        System.exit(totals.failures == 0 ? 0 : 1);
    }

    /** What was judged. */
    static final class Totals {
        int traces, steps, invariants, compared, failures;
        final Map<String, Integer> events = new TreeMap<>();

        void print() {
            for (Map.Entry<String, Integer> event : events.entrySet()) {
                System.out.println("event " + event.getKey() + " " + event.getValue());
            }
            System.out.println("judged traces " + traces + " steps " + steps + " invariants " + invariants
                    + " compared " + compared + " failures " + failures);
        }

        void fail(Trace trace, int step, String what) {
            failures++;
            System.out.println("FAIL " + trace.name + " step " + step + ": " + what);
        }
    }

    /** The model, parsed. */
    static final class Text {
        final CompModule world;
        final Map<String, Func> predicates = new HashMap<>();
        final Map<String, Sig> sigs = new LinkedHashMap<>();
        final Map<String, Sig.Field> fields = new LinkedHashMap<>();
        final List<Expr> facts = new ArrayList<>();
        /** The conjuncts of the invariant. */
        final Map<String, Func> conjuncts = new LinkedHashMap<>();
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
                    predicates.put(last(func.label), func);
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
    }

    static UnsupportedOperationException unknown(Expr expr) {
        return new UnsupportedOperationException(
                "the evaluator does not know " + expr.getClass().getSimpleName() + ": " + expr);
    }

    /** What a value depends on: what may change, variables that are bound outside, the next state. */
    static final class Deps {
        final BitSet vars = new BitSet();
        boolean free, next;

        void add(Deps other) {
            vars.or(other.vars);
            free |= other.free;
            next |= other.next;
        }

        boolean isFixed() {
            return vars.isEmpty() && !next;
        }
    }

    /** One trace: atoms, and steps that say what changes. */
    static final class Trace {
        String name;
        /** By sig, in their order. */
        final Map<String, List<String>> atoms = new LinkedHashMap<>();
        /** Tuples of fields that never change. */
        final Map<String, List<String[]>> fixed = new LinkedHashMap<>();
        final List<Step> steps = new ArrayList<>();

        record Step(String line, String event, List<String> arguments, List<String[]> changes) {}

        static Trace read(BufferedReader lines) throws IOException {
            Trace trace = null;
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] words = line.split(" ");
                switch (words[0]) {
                    case "trace" -> {
                        trace = new Trace();
                        trace.name = line.substring(6);
                    }
                    case "atom" -> {
                        List<String> all = trace.atoms.computeIfAbsent(words[1], k -> new ArrayList<>());
                        all.addAll(Arrays.asList(words).subList(2, words.length));
                    }
                    case "fixed" -> trace.fixed.computeIfAbsent(words[1], k -> new ArrayList<>())
                            .add(Arrays.copyOfRange(words, 2, words.length));
                    case "step" -> trace.steps.add(step(line));
                    case "end" -> {
                        return trace;
                    }
                    default -> throw new IOException("no line of a trace: " + line);
                }
            }
            return null;
        }

        /** `step EVENT ARGUMENT... ; +VAR ATOM... ; -VAR ATOM... # where in the run` */
        private static Step step(String line) {
            int comment = line.indexOf(" #");
            String[] parts = (comment < 0 ? line : line.substring(0, comment)).split(" ; ");
            String[] words = parts[0].split(" ");
            List<String[]> changes = new ArrayList<>();
            for (int i = 1; i < parts.length; i++) {
                changes.add(parts[i].split(" "));
            }
            List<String> arguments = Arrays.asList(words).subList(2, words.length);
            return new Step(line, words[1], arguments, changes);
        }
    }

    /** A set, or a relation of two or three places, over numbered atoms. Never changed once used. */
    static final class Rel {
        final int arity;
        /** Of arity 1: the atoms. */
        final BitSet set;
        /** Of arity 2 or 3, by the first atom; none: empty. */
        final Rel[] rows;

        Rel(BitSet set) {
            this.arity = 1;
            this.set = set;
            this.rows = null;
        }

        Rel(int arity, Rel[] rows) {
            this.arity = arity;
            this.set = null;
            this.rows = rows;
        }

        boolean isEmpty() {
            if (arity == 1) {
                return set.isEmpty();
            }
            for (Rel row : rows) {
                if (row != null && !row.isEmpty()) {
                    return false;
                }
            }
            return true;
        }

        int count() {
            if (arity == 1) {
                return set.cardinality();
            }
            int count = 0;
            for (Rel row : rows) {
                count += row == null ? 0 : row.count();
            }
            return count;
        }

        boolean in(Rel other) {
            if (arity != other.arity) {
                throw new IllegalArgumentException("arities differ");
            }
            if (arity == 1) {
                BitSet rest = (BitSet) set.clone();
                rest.andNot(other.set);
                return rest.isEmpty();
            }
            for (int i = 0; i < rows.length; i++) {
                if (rows[i] != null && !rows[i].isEmpty()
                        && (other.rows[i] == null || !rows[i].in(other.rows[i]))) {
                    return false;
                }
            }
            return true;
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Rel rel && arity == rel.arity && in(rel) && rel.in(this);
        }

        @Override
        public int hashCode() {
            int hash = arity;
            if (arity == 1) {
                return set.hashCode();
            }
            for (int i = 0; i < rows.length; i++) {
                if (rows[i] != null && !rows[i].isEmpty()) {
                    hash = 31 * hash + 7 * i + rows[i].hashCode();
                }
            }
            return hash;
        }

        static Rel none(int arity, int atoms) {
            return arity == 1 ? new Rel(new BitSet()) : new Rel(arity, new Rel[atoms]);
        }

        enum Set { PLUS, MINUS, AND }

        Rel with(Rel other, Set op) {
            if (arity == 1) {
                BitSet result = (BitSet) set.clone();
                switch (op) {
                    case PLUS -> result.or(other.set);
                    case MINUS -> result.andNot(other.set);
                    case AND -> result.and(other.set);
                }
                return new Rel(result);
            }
            Rel[] result = new Rel[rows.length];
            for (int i = 0; i < rows.length; i++) {
                Rel a = rows[i];
                Rel b = other.rows[i];
                if (a != null && b != null) {
                    result[i] = a.with(b, op);
                } else if (op != Set.AND) {
                    result[i] = a != null ? a : op == Set.PLUS ? b : null;
                }
            }
            return new Rel(arity, result);
        }

        Rel join(Rel other) {
            int atoms = rows != null ? rows.length : other.rows.length;
            if (arity == 1) {
                if (other.arity == 1) {
                    throw new IllegalArgumentException("a join of two sets");
                }
                Rel result = none(other.arity - 1, atoms);
                for (int i = set.nextSetBit(0); i >= 0; i = set.nextSetBit(i + 1)) {
                    if (other.rows[i] != null) {
                        result = result.with(other.rows[i], Set.PLUS);
                    }
                }
                return result;
            }
            if (arity == 2 && other.arity == 1) {
                BitSet result = new BitSet();
                for (int i = 0; i < rows.length; i++) {
                    if (rows[i] != null && rows[i].set.intersects(other.set)) {
                        result.set(i);
                    }
                }
                return new Rel(result);
            }
            Rel[] result = new Rel[rows.length];
            for (int i = 0; i < rows.length; i++) {
                result[i] = rows[i] == null ? null : rows[i].join(other);
            }
            return new Rel(arity + other.arity - 2, result);
        }

        Rel times(Rel other, int atoms) {
            Rel[] result = new Rel[atoms];
            for (int i = 0; i < atoms; i++) {
                if (arity == 1 && set.get(i)) {
                    result[i] = other;
                } else if (arity > 1 && rows[i] != null) {
                    result[i] = rows[i].times(other, atoms);
                }
            }
            return new Rel(arity + other.arity, result);
        }

        Rel transposed() {
            Rel[] result = new Rel[rows.length];
            for (int i = 0; i < rows.length; i++) {
                if (rows[i] == null) {
                    continue;
                }
                BitSet row = rows[i].set;
                for (int j = row.nextSetBit(0); j >= 0; j = row.nextSetBit(j + 1)) {
                    if (result[j] == null) {
                        result[j] = new Rel(new BitSet());
                    }
                    result[j].set.set(i);
                }
            }
            return new Rel(2, result);
        }

        Rel closure() {
            Rel result = this;
            while (true) {
                Rel longer = result.with(result.join(result), Set.PLUS);
                if (longer.in(result)) {
                    return result;
                }
                result = longer;
            }
        }

        Rel overridden(Rel other) {
            Rel[] result = rows.clone();
            for (int i = 0; i < rows.length; i++) {
                if (other.rows[i] != null && !other.rows[i].isEmpty()) {
                    result[i] = other.rows[i];
                }
            }
            return new Rel(arity, result);
        }

        Rel restricted(Rel domain) {
            Rel[] result = new Rel[rows.length];
            for (int i = 0; i < rows.length; i++) {
                result[i] = domain.set.get(i) ? rows[i] : null;
            }
            return new Rel(arity, result);
        }

        /** Only the tuples that end in `range`; of two places. */
        Rel to(Rel range) {
            Rel[] result = new Rel[rows.length];
            for (int i = 0; i < rows.length; i++) {
                result[i] = rows[i] == null ? null : rows[i].with(range, Set.AND);
            }
            return new Rel(2, result);
        }
    }

    /** One trace under the text. */
    static final class Case {
        final Text text;
        final Trace trace;
        final Totals totals;
        final Map<String, Integer> numbers = new HashMap<>();
        final List<String> names = new ArrayList<>();
        final Map<Expr, Rel> fixed = new IdentityHashMap<>();
        final Judge judge;

        Case(Text text, Trace trace, Totals totals) {
            this.text = text;
            this.trace = trace;
            this.totals = totals;
            number();
            judge = new Judge(text, fixed, names.size());
        }

        /** Numbers the atoms, and fills what never changes. */
        private void number() {
            Map<Sig, BitSet> of = new IdentityHashMap<>();
            for (Map.Entry<String, Sig> entry : text.sigs.entrySet()) {
                if (!(entry.getValue() instanceof Sig.PrimSig sig) || sig.builtin) {
                    continue;
                }
                List<String> atoms = trace.atoms.get(entry.getKey());
                if (sig.isOne != null && atoms == null) {
                    atoms = List.of(entry.getKey());
                }
                for (String atom : atoms == null ? List.<String>of() : atoms) {
                    int number = names.size();
                    if (numbers.put(atom, number) != null) {
                        throw new IllegalArgumentException("two atoms are called " + atom);
                    }
                    names.add(atom);
                    for (Sig.PrimSig up = sig; up != null && !up.builtin; up = up.parent) {
                        of.computeIfAbsent(up, k -> new BitSet()).set(number);
                    }
                }
            }
            for (Sig sig : text.sigs.values()) {
                if (sig instanceof Sig.PrimSig) {
                    fixed.put(sig, new Rel(of.getOrDefault(sig, new BitSet())));
                }
            }
            BitSet all = new BitSet();
            all.set(0, names.size());
            fixed.put(Sig.UNIV, new Rel(all));
            fixed.put(Sig.NONE, new Rel(new BitSet()));
            for (Map.Entry<String, Sig.Field> entry : text.fields.entrySet()) {
                if (entry.getValue().isVariable == null) {
                    fixed.put(entry.getValue(), fixedField(entry.getKey(), entry.getValue()));
                }
            }
        }

        private Rel fixedField(String name, Sig.Field field) {
            if (name.equals("rules")) {
                return set("Protocol").times(set("Rule"), names.size());
            }
            String ordered = name.startsWith("refs/") ? "Ref" : "Write";
            if (name.endsWith("/Ord.First")) {
                return ordinal(name).times(atom(trace.atoms.get("order~" + ordered), 0), names.size());
            }
            if (name.endsWith("/Ord.Next")) {
                List<String> order = trace.atoms.get("order~" + ordered);
                Rel next = Rel.none(2, names.size());
                for (int i = 0; i + 1 < order.size(); i++) {
                    next.rows[numbers.get(order.get(i))] = atom(order, i + 1);
                }
                return ordinal(name).times(next, names.size());
            }
            Rel result = Rel.none(2, names.size());
            for (String[] tuple : trace.fixed.getOrDefault(name, List.of())) {
                result = changed(result, tuple, 0, true);
            }
            return result;
        }

        private Rel ordinal(String field) {
            return set(field.substring(0, field.indexOf('.')));
        }

        private Rel set(String sig) {
            return fixed.get(text.sigs.get(sig));
        }

        private Rel atom(List<String> of, int index) {
            return singleton(number(of.get(index)));
        }

        static Rel singleton(int number) {
            BitSet set = new BitSet();
            set.set(number);
            return new Rel(set);
        }

        private int number(String atom) {
            Integer number = numbers.get(atom);
            if (number == null) {
                throw new IllegalArgumentException(trace.name + ": no atom " + atom);
            }
            return number;
        }

        /** A relation with a tuple more or less. */
        private Rel changed(Rel rel, String[] words, int from, boolean more) {
            int first = number(words[from]);
            Rel tuple = singleton(first);
            if (rel.arity == 2) {
                Rel[] rows = new Rel[names.size()];
                rows[first] = singleton(number(words[from + 1]));
                tuple = new Rel(2, rows);
            }
            return rel.with(tuple, more ? Rel.Set.PLUS : Rel.Set.MINUS);
        }

        void judge() throws Exception {
            totals.traces++;
            Rel[] state = new Rel[text.varNames.size()];
            text.vars.forEach((what, number) -> state[number] =
                    Rel.none(what instanceof Sig ? 1 : 2, names.size()));
            state[text.varNames.indexOf("attempted")] = set("Start");
            state[text.varNames.indexOf("succeeded")] = set("Start");
            state[text.varNames.indexOf("truth")] = set("Start");
            judge.begin(state);
            for (Expr fact : text.facts) {
                if (!judge.holds(fact)) {
                    totals.fail(trace, 0, "the atoms do not satisfy the fact at " + where(fact));
                    return;
                }
            }
            if (!judge.holds(text.predicates.get("init").getBody())) {
                totals.fail(trace, 0, "`init` does not hold");
                return;
            }
            for (int i = 0; i < trace.steps.size(); i++) {
                if (!step(i + 1, trace.steps.get(i))) {
                    return;
                }
            }
        }

        /** False where nothing more of this trace is worth judging. */
        private boolean step(int number, Trace.Step step) throws Exception {
            Rel[] before = judge.states[0];
            Rel[] after = before.clone();
            BitSet changed = new BitSet();
            for (String[] change : step.changes) {
                int variable = text.varNames.indexOf(change[0].substring(1));
                after[variable] = changed(after[variable], change, 1, change[0].charAt(0) == '+');
                changed.set(variable);
            }
            judge.next(after);
            totals.steps++;
            totals.events.merge(step.event, 1, Integer::sum);
            Func event = text.predicates.get(step.event);
            if (event == null || event.count() != step.arguments.size()) {
                totals.fail(trace, number, "no event " + step.event + " of " + step.arguments.size());
                return false;
            }
            List<Rel> arguments = new ArrayList<>();
            for (String argument : step.arguments) {
                arguments.add(singleton(number(argument)));
            }
            boolean holds = judge.call(event, arguments);
            boolean sampled = totals.steps % SAMPLE == 0 || !holds;
            if (!holds) {
                totals.fail(trace, number, "event " + shown(step) + " does not hold"
                        + judge.blame(event, arguments) + context(number));
            }
            if (sampled && totals.compared < 50) {
                compare(number, step, before, after, holds);
            }
            if (!holds) {
                return false;
            }
            judge.advance();
            for (Map.Entry<String, Func> conjunct : text.conjuncts.entrySet()) {
                if (!text.of(conjunct.getValue()).vars.intersects(changed)) {
                    continue;
                }
                totals.invariants++;
                if (!judge.call(conjunct.getValue(), List.of())) {
                    totals.fail(trace, number, "after event " + shown(step) + " the invariant `"
                            + conjunct.getKey() + "` does not hold"
                            + judge.blame(conjunct.getValue(), List.of()) + context(number));
                    return false;
                }
            }
            return true;
        }

        private static String shown(Trace.Step step) {
            return step.event + step.arguments.toString().replace(", ", ",");
        }

        /** The last steps, and where in the run they are. */
        private String context(int number) {
            StringBuilder out = new StringBuilder();
            for (int i = Math.max(0, number - 8); i < number; i++) {
                out.append("\n    ").append(i + 1).append(' ').append(trace.steps.get(i).line());
            }
            return out.toString();
        }

        /** The same question to Alloy's evaluator. */
        private void compare(int number, Trace.Step step, Rel[] before, Rel[] after, boolean holds)
                throws Exception {
            totals.compared++;
            List<Integer> named = new ArrayList<>();
            step.arguments.forEach(argument -> named.add(number(argument)));
            String xml = new Window(text, fixed, names, named, before, after).toString();
            A4Solution pair = A4SolutionReader.read(text.world.getAllReachableSigs(),
                    new XMLNode(new StringReader(xml)));
            Map<String, ExprVar> atoms = new HashMap<>();
            for (ExprVar atom : pair.getAllSkolems()) {
                atoms.put(atom.label, atom);
            }
            List<Expr> arguments = new ArrayList<>();
            for (int i = 0; i < named.size(); i++) {
                arguments.add(atoms.get("$" + i));
            }
            Func event = text.predicates.get(step.event);
            Object theirs = pair.eval(event.call(arguments.toArray(new Expr[0])), 0);
            if (!theirs.equals(holds)) {
                totals.fail(trace, number, "the two evaluators differ on " + shown(step) + ": " + theirs
                        + " by Alloy's");
            }
            if (!holds) {
                return;
            }
            Rel[] kept = judge.states[0];
            judge.begin(after);
            boolean invariant = text.conjuncts.values().stream().allMatch(f -> judge.call(f, List.of()));
            judge.begin(kept);
            judge.next(after);
            theirs = pair.eval(text.predicates.get("invariant").call(), 1);
            if (!theirs.equals(invariant)) {
                totals.fail(trace, number, "the two evaluators differ on the invariant after " + shown(step)
                        + ": " + theirs + " by Alloy's");
            }
        }
    }

    static String where(Expr expr) {
        Pos pos = expr.span();
        return Text.last(pos.filename) + " line " + pos.y;
    }

    /** Two states as Alloy writes solutions down. */
    static final class Window {
        private final StringBuilder out = new StringBuilder();
        private final Map<Sig, Integer> ids = new IdentityHashMap<>();
        private final Text text;
        private final Map<Expr, Rel> fixed;
        private final List<String> names;

        /** `named`: atoms that are found again by their place among these; others Alloy renames. */
        Window(Text text, Map<Expr, Rel> fixed, List<String> names, List<Integer> named,
                Rel[]... states) {
            this.text = text;
            this.fixed = fixed;
            this.names = names;
            id(Sig.UNIV);
            text.sigs.values().forEach(this::id);
            out.append("<alloy builddate=\"\">\n");
            for (Rel[] state : states) {
                out.append("<instance bitwidth=\"4\" maxseq=\"2\" mintrace=\"2\" maxtrace=\"2\" command=\"\"")
                        .append(" filename=\"\" tracelength=\"2\" looplength=\"1\">\n");
                text.sigs.values().forEach(sig -> write(sig, state));
                for (int i = 0; i < named.size(); i++) {
                    skolem(i, named.get(i));
                }
                out.append("</instance>\n");
            }
            out.append("</alloy>\n");
        }

        private int id(Sig sig) {
            return ids.computeIfAbsent(sig, k -> ids.size());
        }

        private void write(Sig sig, Rel[] state) {
            if (sig == Sig.NONE) {
                return;
            }
            out.append("<sig label=\"").append(sig.label).append("\" ID=\"").append(id(sig)).append('"');
            if (sig instanceof Sig.PrimSig prim && prim.parent != null) {
                out.append(" parentID=\"").append(id(prim.parent)).append('"');
            }
            flag("builtin", sig.builtin);
            flag("abstract", sig.isAbstract != null);
            flag("one", sig.isOne != null);
            flag("lone", sig.isLone != null);
            flag("private", sig.isPrivate != null);
            flag("var", sig.isVariable != null);
            out.append(">\n");
            if (sig instanceof Sig.PrimSig prim) {
                if (!sig.builtin) {
                    BitSet own = (BitSet) fixed.get(sig).set.clone();
                    prim.children().forEach(child -> own.andNot(fixed.get(child).set));
                    atoms(own);
                }
            } else {
                atoms(state[text.vars.get(sig)].set);
                ((Sig.SubsetSig) sig).parents.forEach(p ->
                        out.append("<type ID=\"").append(id(p)).append("\"/>\n"));
            }
            out.append("</sig>\n");
            for (Sig.Field field : sig.getFields()) {
                write(sig, field, state);
            }
        }

        private void write(Sig sig, Sig.Field field, Rel[] state) {
            out.append("<field label=\"").append(field.label).append("\" ID=\"")
                    .append(1_000 + out.length()).append("\" parentID=\"").append(id(sig)).append('"');
            flag("private", field.isPrivate != null);
            flag("var", field.isVariable != null);
            out.append(">\n");
            Integer variable = text.vars.get(field);
            tuples(variable == null ? fixed.get(field) : state[variable], "");
            out.append("<types>");
            for (Sig.PrimSig type : field.type().fold().get(0)) {
                out.append("<type ID=\"").append(id(type)).append("\"/>");
            }
            out.append("</types>\n</field>\n");
        }

        private void skolem(int index, int atom) {
            Sig of = Sig.UNIV;
            for (Sig sig : text.sigs.values()) {
                boolean own = sig instanceof Sig.PrimSig prim && !sig.builtin && prim.children().isEmpty();
                of = own && fixed.get(sig).set.get(atom) ? sig : of;
            }
            out.append("<skolem label=\"$").append(index).append("\" ID=\"").append(500 + index)
                    .append("\">\n<tuple>").append(atom(atom)).append("</tuple>\n<types><type ID=\"")
                    .append(id(of)).append("\"/></types>\n</skolem>\n");
        }

        private void flag(String name, boolean is) {
            if (is) {
                out.append(' ').append(name).append("=\"yes\"");
            }
        }

        private void atoms(BitSet set) {
            set.stream().forEach(i -> out.append(atom(i)).append('\n'));
        }

        private String atom(int number) {
            return "<atom label=\"" + names.get(number) + "$0\"/>";
        }

        private void tuples(Rel rel, String prefix) {
            if (rel.arity == 1) {
                rel.set.stream().forEach(i ->
                        out.append("<tuple>").append(prefix).append(atom(i)).append("</tuple>\n"));
                return;
            }
            for (int i = 0; i < rel.rows.length; i++) {
                if (rel.rows[i] != null) {
                    tuples(rel.rows[i], prefix + atom(i));
                }
            }
        }

        @Override
        public String toString() {
            return out.toString();
        }
    }

    /** Evaluates the text over one state and the next. */
    static final class Judge {
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
                    found = ": not `" + source(part) + "` (" + where(part) + ")";
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
                    default -> throw unknown(expr);
                };
            }
            throw unknown(expr);
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
                default -> throw unknown(e);
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
                default -> throw unknown(e);
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
                default -> throw unknown(e);
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
                default -> throw unknown(e);
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
}
