/* What has to be evaluated again, and when. */

import java.util.BitSet;

/** What a value depends on: what may change, variables that are bound outside, the next state. */
final class Deps {
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
