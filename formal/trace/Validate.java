/*
 * Judges traces of the simulator by the text of the model.
 *
 *   java -cp ALLOY.jar:CLASSES Validate MODEL.als TRACES.txt...
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
 * every step of a sample, of which there is a bound, and every step that it refuses, is put to
 * Alloy's evaluator, too; if the two differ, that is a failure of its own.
 *
 * The format of a trace is that of crates/sim/src/model/text.rs.
 */

import java.io.BufferedReader;
import java.nio.file.Files;
import java.nio.file.Path;

public class Validate {
    /** Steps between two that are put to Alloy's evaluator as well. */
    static final int SAMPLE = 250;
    /** How many at most: each takes milliseconds. Refused steps are put to it in any case. */
    static final int SAMPLES = 200;
    /** Of traces with so many atoms at most: of more, Alloy's evaluator takes minutes for one step. */
    static final int SAMPLED_ATOMS = 400;

    /** Exits with 0 where all holds, 1 where a step is refused, and else with 2 and why. */
    public static void main(String[] arguments) {
        try {
            judge(arguments);
        } catch (Exception | StackOverflowError error) {
            System.err.println(error);
            System.exit(2);
        }
    }

    private static void judge(String[] arguments) throws Exception {
        if (arguments.length < 2) {
            System.err.println("usage: Validate MODEL.als TRACES...");
            System.exit(2);
        }
        Text text = new Text(arguments[0]);
        Totals totals = new Totals();
        text.events().forEach(event -> totals.events.put(event, 0));
        text.cases.values().forEach(of -> of.forEach(met -> totals.cases.put(Text.last(met.label), 0)));
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
}
