/* Two states for Alloy's own evaluator, against which the one here is checked. */

import edu.mit.csail.sdg.ast.Expr;
import edu.mit.csail.sdg.ast.Sig;
import java.util.BitSet;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;

/** Two states as Alloy writes solutions down. */
final class Window {
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
