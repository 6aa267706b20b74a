/* A trace as the simulator writes it. */

import java.io.BufferedReader;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** One trace: atoms, and steps that say what changes. */
final class Trace {
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
