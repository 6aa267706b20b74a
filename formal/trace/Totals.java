/* What all traces come to. */

import java.util.Map;
import java.util.TreeMap;

/** What was judged. */
final class Totals {
    int traces, steps, invariants, samples, compared, failures;
    final Map<String, Integer> events = new TreeMap<>();
    final Map<String, Integer> cases = new TreeMap<>();

    void print() {
        for (Map.Entry<String, Integer> event : events.entrySet()) {
            System.out.println("event " + event.getKey() + " " + event.getValue());
        }
        for (Map.Entry<String, Integer> met : cases.entrySet()) {
            System.out.println("case " + met.getKey() + " " + met.getValue());
        }
        System.out.println("judged traces " + traces + " steps " + steps + " invariants " + invariants
                + " compared " + compared + " failures " + failures);
    }

    void fail(Trace trace, int step, String what) {
        failures++;
        System.out.println("FAIL " + trace.name + " step " + step + ": " + what);
    }
}
