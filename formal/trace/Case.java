/* One trace under the text: its steps, one after the other. */

import edu.mit.csail.sdg.alloy4.XMLNode;
import edu.mit.csail.sdg.ast.Expr;
import edu.mit.csail.sdg.ast.ExprVar;
import edu.mit.csail.sdg.ast.Func;
import edu.mit.csail.sdg.ast.Sig;
import edu.mit.csail.sdg.translator.A4Solution;
import edu.mit.csail.sdg.translator.A4SolutionReader;
import java.io.StringReader;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;

/** One trace under the text. */
final class Case {
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
                totals.fail(trace, 0, "the atoms do not satisfy the fact at " + Text.where(fact));
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
        for (String[] change : step.changes()) {
            int variable = text.varNames.indexOf(change[0].substring(1));
            after[variable] = changed(after[variable], change, 1, change[0].charAt(0) == '+');
            changed.set(variable);
        }
        judge.next(after);
        totals.steps++;
        totals.events.merge(step.event(), 1, Integer::sum);
        Func event = text.predicates.get(step.event());
        if (event == null || event.count() != step.arguments().size()) {
            totals.fail(trace, number, "no event " + step.event() + " of " + step.arguments().size());
            return false;
        }
        List<Rel> arguments = new ArrayList<>();
        for (String argument : step.arguments()) {
            arguments.add(singleton(number(argument)));
        }
        boolean holds = judge.call(event, arguments);
        boolean sampled = totals.steps % Validate.SAMPLE == 0 && totals.samples < Validate.SAMPLES
                && names.size() <= Validate.SAMPLED_ATOMS;
        if (!holds) {
            totals.fail(trace, number, "event " + shown(step) + " does not hold"
                    + judge.blame(event, arguments) + context(number));
        }
        if (sampled || !holds) {
            totals.samples += sampled ? 1 : 0;
            compare(number, step, before, after, holds);
        }
        if (!holds) {
            return false;
        }
        for (Func met : text.cases.getOrDefault(step.event(), List.of())) {
            if (judge.call(met, arguments)) {
                totals.cases.merge(Text.last(met.label), 1, Integer::sum);
            }
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
        return step.event() + step.arguments().toString().replace(", ", ",");
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
        step.arguments().forEach(argument -> named.add(number(argument)));
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
        Func event = text.predicates.get(step.event());
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
