//! A directed graph, its strongly connected components (Tarjan, "Depth-first search and linear
//! graph algorithms", SIAM Journal on Computing 1(2), 1972) and a shortest cycle in one.

use std::collections::VecDeque;

/// Edges that the search for the shortest cycle looks at, at most.
const LOOKS: u64 = 20_000_000;

/// An edge and what it stands for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge<W> {
    pub from: u32,
    pub to: u32,
    pub why: W,
}

/// A graph whose first nodes stand for transactions; those behind stand for nothing and only save
/// edges.
pub(super) struct Graph<W> {
    /// Sorted by `from`.
    edges: Vec<Edge<W>>,
    /// Node -> its first edge; one more at the end.
    first: Vec<u32>,
    transactions: u32,
}

/// A cycle, as edges one behind the other, the first of which leaves a transaction.
pub(super) struct Cycle<W> {
    pub edges: Vec<Edge<W>>,
    /// None is shorter.
    pub shortest: bool,
}

impl<W: Copy> Graph<W> {
    pub(super) fn new(transactions: usize, nodes: usize, mut edges: Vec<Edge<W>>) -> Graph<W> {
        edges.sort_by_key(|edge| edge.from);
        let mut first = vec![0; nodes + 1];
        for edge in &edges {
            first[edge.from as usize + 1] += 1;
        }
        for node in 0..nodes {
            first[node + 1] += first[node];
        }
        Graph {
            edges,
            first,
            transactions: transactions as u32,
        }
    }

    fn nodes(&self) -> usize {
        self.first.len() - 1
    }

    fn out(&self, node: u32) -> std::ops::Range<usize> {
        self.first[node as usize] as usize..self.first[node as usize + 1] as usize
    }

    /// A cycle with the fewest transactions; none: there is no cycle.
    pub(super) fn shortest_cycle(&self) -> Option<Cycle<W>> {
        let (component, mut cyclic) = self.components();
        cyclic.sort_by_key(|(_, size)| *size);
        let mut search = Search::new(self, &component);
        for (cyclic, _) in &cyclic {
            for node in 0..self.transactions {
                if component[node as usize] == *cyclic {
                    search.from(node);
                }
                if search.looks == 0 && search.best.is_some() {
                    break;
                }
            }
        }
        let shortest = search.looks > 0;
        let edges = search.best?.into_iter().map(|edge| self.edges[edge]);
        Some(Cycle {
            edges: edges.collect(),
            shortest,
        })
    }

    /// The component of each node, and those that have more than one node, with their sizes.
    fn components(&self) -> (Vec<u32>, Vec<(u32, u32)>) {
        const NONE: u32 = u32::MAX;
        let nodes = self.nodes();
        let (mut index, mut low) = (vec![NONE; nodes], vec![0; nodes]);
        let (mut component, mut cyclic) = (vec![NONE; nodes], Vec::new());
        let (mut stack, mut path): (Vec<u32>, Vec<(u32, usize)>) = (Vec::new(), Vec::new());
        let (mut next, mut components) = (0, 0);
        for root in 0..nodes as u32 {
            if index[root as usize] != NONE {
                continue;
            }
            path.push((root, self.out(root).start));
            while let Some((node, edge)) = path.last_mut() {
                let at = *node as usize;
                if index[at] == NONE {
                    (index[at], low[at]) = (next, next);
                    next += 1;
                    stack.push(*node);
                }
                if *edge < self.out(*node).end {
                    let to = self.edges[*edge].to;
                    *edge += 1;
                    if index[to as usize] == NONE {
                        path.push((to, self.out(to).start));
                    } else if component[to as usize] == NONE {
                        low[at] = low[at].min(index[to as usize]);
                    }
                    continue;
                }
                path.pop();
                if let Some((parent, _)) = path.last() {
                    let parent = *parent as usize;
                    low[parent] = low[parent].min(low[at]);
                }
                if low[at] == index[at] {
                    let mut size = 0;
                    while component[at] == NONE {
                        let member = stack.pop().expect("the node itself is on the stack");
                        component[member as usize] = components;
                        size += 1;
                    }
                    if size > 1 {
                        cyclic.push((components, size));
                    }
                    components += 1;
                }
            }
        }
        (component, cyclic)
    }
}

/// Breadth-first from each transaction of a component; only leaving a transaction counts.
struct Search<'a, W> {
    graph: &'a Graph<W>,
    component: &'a [u32],
    looks: u64,
    /// Edges of the shortest cycle so far, and its transactions.
    best: Option<Vec<usize>>,
    length: u32,
    /// Node -> the search that reached it, its distance, and the edge that reached it.
    reached: Vec<(u32, u32, usize)>,
}

impl<'a, W: Copy> Search<'a, W> {
    fn new(graph: &'a Graph<W>, component: &'a [u32]) -> Search<'a, W> {
        Search {
            graph,
            component,
            looks: LOOKS,
            best: None,
            length: u32::MAX,
            reached: vec![(u32::MAX, 0, 0); graph.nodes()],
        }
    }

    fn from(&mut self, start: u32) {
        let graph = self.graph;
        let mut queue = VecDeque::from([(start, 0)]);
        while let Some((node, distance)) = queue.pop_front() {
            let known = self.reached[node as usize];
            if node != start && known.0 == start && known.1 < distance {
                continue;
            }
            let counts = node < graph.transactions;
            let next = distance + u32::from(counts);
            // A bound on work alone, but not before there is any cycle to show.
            if next >= self.length || (self.looks == 0 && self.best.is_some()) {
                continue;
            }
            for edge in graph.out(node) {
                let to = graph.edges[edge].to;
                self.looks = self.looks.saturating_sub(1);
                if self.component[to as usize] != self.component[start as usize] {
                    continue;
                }
                if to == start {
                    self.length = next;
                    self.best = Some(self.way(start, edge));
                    return;
                }
                let known = &mut self.reached[to as usize];
                if known.0 == start && known.1 <= next {
                    continue;
                }
                *known = (start, next, edge);
                if counts {
                    queue.push_back((to, next));
                } else {
                    queue.push_front((to, next));
                }
            }
        }
    }

    /// The edges from `start` to the last one, which leads back to it.
    fn way(&self, start: u32, last: usize) -> Vec<usize> {
        let mut way = vec![last];
        let mut node = self.graph.edges[last].from;
        while node != start {
            let edge = self.reached[node as usize].2;
            way.push(edge);
            node = self.graph.edges[edge].from;
        }
        way.reverse();
        way
    }
}
