/* Sets and relations of a state, and the operators of Alloy on them. */

import java.util.BitSet;

/** A set, or a relation of two or three places, over numbered atoms. Never changed once used. */
final class Rel {
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
