"use strict";
/* Give access to one run: its calls as the nodes of a tree, and how they compare with another run. */

const KIND = { MODULE: 0, API: 1, PARAMETERS_GRAD: 2, DEBUG: 3, NO_RECORD: 4 };
const SIDE = { IN: 0, PARAMETER: 1, OUT: 2 };
/* How a call compares. The larger the number, the more it matters. */
const STATE = { NOT_COMPARED: 0, SAME: 1, DIFFERS: 2, CAUSE: 3, FIRST_ALONE: 4, SECOND_ALONE: 5 };
const STATISTICS = ["Max", "Min", "Mean", "Norm"];

/** What is known about the tensors of all runs; each is described once. */
class Facts {
  constructor(columns, texts) {
    Object.assign(this, columns);
    this.texts = texts;
    this.wholes = new Map(columns.exact.map(([fact, statistic, text]) => [fact * 4 + statistic, text]));
  }

  /** Return the number of a statistic; NaN also where it is absent. */
  value(fact, statistic) {
    return this[STATISTICS[statistic]][fact];
  }

  has(fact, statistic) {
    return ((this.marks[fact] >> (2 * statistic)) & 3) !== 1;
  }

  /** Return a statistic in words: a number, true or false, an exact whole number, or a dash where it is absent. */
  text(fact, statistic, digits) {
    const mark = (this.marks[fact] >> (2 * statistic)) & 3;
    if (mark === 1) return "–";
    if (mark === 2) return this.value(fact, statistic) ? "true" : "false";
    if (mark === 3) return this.wholes.get(fact * 4 + statistic);
    return Numbers.text(this.value(fact, statistic), digits);
  }

  isBroken(fact) {
    return this.broken[fact] !== 0;
  }

  word(column, fact) {
    return this.texts[this[column][fact]];
  }

  /** Return what tensors of the same shape, dtype and statistics have in common. */
  key(fact) {
    return [this.type(fact), ...STATISTICS.map((_, i) => this.text(fact, i, 17))].join(" ");
  }

  type(fact) {
    return `${this.word("dtype", fact)} [${this.word("shape", fact)}]`;
  }
}

class Run {
  /** raw: the columns of the run. data: the whole document, with `facts`, `texts` and `stacks`. */
  constructor(raw, number, data) {
    Object.assign(this, raw);
    this.raw = raw;
    this.number = number;
    this.data = data;
    this.size = raw.name.length; // own nodes; those of a second run alone come after them
    this.comparison = data.comparisons.find((each) => each.a === number) ?? null;
    /* Whether values that are not finite are a finding: those that were asked for (a mask) are none. */
    this.alarming = !data.findings.some((each) => each.kind === "finite" && each.dump === raw.dump && each.state === "same");
    this.prepared = false;
  }

  /** Lay out the tree and what is below each node. Done when the run is first shown. */
  prepare() {
    if (this.prepared) return this;
    this.prepared = true;
    const alone = this.comparison ? this.comparison.alone.length : 0;
    this.count = this.size + alone;
    this.other = this.comparison ? this.data.runs[this.comparison.b] : null;
    this.parents = new Int32Array(this.count);
    this.parents.set(this.raw.parent);
    if (alone) this.parents.set(this.comparison.aloneParent, this.size);
    this.calls = alone; // how many are recorded
    for (let i = 0; i < this.size; i++) if (this.raw.kind[i] !== KIND.NO_RECORD) this.calls++;
    this.layOut();
    this.mark();
    return this;
  }

  /** Put the nodes in the order of the tree: `preorder`, with the place, depth and number of nodes below of each. */
  layOut() {
    const n = this.count;
    const first = new Int32Array(n + 1).fill(-1);
    const next = new Int32Array(n).fill(-1);
    for (let i = n - 1; i >= 0; i--) {
      const above = this.parents[i] < 0 ? n : this.parents[i];
      next[i] = first[above];
      first[above] = i;
    }
    this.firstChild = first;
    this.preorder = new Int32Array(n);
    this.at = new Int32Array(n);
    this.depth = new Int32Array(n);
    this.span = new Int32Array(n).fill(1);
    let place = 0;
    let node = first[n];
    while (node >= 0) {
      const above = this.parents[node];
      this.depth[node] = above < 0 ? 0 : this.depth[above] + 1;
      this.at[node] = place;
      this.preorder[place++] = node;
      if (first[node] >= 0) { node = first[node]; continue; }
      while (node >= 0 && next[node] < 0) node = this.parents[node];
      node = node < 0 ? -1 : next[node];
    }
    for (let i = place - 1; i >= 0; i--) {
      const above = this.parents[this.preorder[i]];
      if (above >= 0) this.span[above] += this.span[this.preorder[i]];
    }
  }

  /** Mark the nodes whose values are not finite, and how each compares; and the same of all that is below them. */
  mark() {
    const { facts } = this.data;
    this.bad = new Uint8Array(this.count);
    this.state = new Uint8Array(this.count);
    for (let i = 0; i < this.count; i++) {
      const [run, own] = this.source(i);
      for (let v = run.begin[own]; v < run.begin[own + 1]; v++) if (facts.isBroken(run.fact[v])) { this.bad[i] = 1; break; }
    }
    this.change = new Int32Array(this.count).fill(-1); // place among the changed calls of the comparison
    if (this.comparison) this.markDifferences(this.comparison);
    this.badBelow = Uint8Array.from(this.bad);
    this.stateBelow = Uint8Array.from(this.state);
    for (let i = this.count - 1; i > 0; i--) {
      const node = this.preorder[i];
      const above = this.parents[node];
      if (above < 0) continue;
      this.badBelow[above] |= this.badBelow[node];
      if (this.stateBelow[node] > this.stateBelow[above]) this.stateBelow[above] = this.stateBelow[node];
    }
  }

  markDifferences(found) {
    for (let i = 0; i < this.size; i++) this.state[i] = found.pair[i] >= 0 ? STATE.SAME : STATE.NOT_COMPARED;
    for (const node of found.onlyFirst) this.state[node] = STATE.FIRST_ALONE;
    this.state.fill(STATE.SECOND_ALONE, this.size);
    found.node.forEach((node, i) => {
      this.state[node] = found.cause[i] ? STATE.CAUSE : STATE.DIFFERS;
      this.change[node] = i;
    });
  }

  /** Return [run, node]: where the record of a node is. It is in the second run for a node of that alone. */
  source(node) {
    return node < this.size ? [this, node] : [this.other, this.comparison.alone[node - this.size]];
  }

  /** Return [run, node] of the same call in the second run; null without one. */
  partner(node) {
    if (!this.comparison || node >= this.size || this.comparison.pair[node] < 0) return null;
    return [this.other, this.comparison.pair[node]];
  }

  nameOf(node) {
    const [run, own] = this.source(node);
    return this.data.texts[run.name[own]];
  }

  isBackward(node) {
    const [run, own] = this.source(node);
    return run.backward[own] === 1;
  }

  kindOf(node) {
    const [run, own] = this.source(node);
    return run.kind[own];
  }

  stackOf(node) {
    const [run, own] = this.source(node);
    return this.data.stacks[run.stack[own]];
  }

  /** Return the tensors of a record: {slot, side, fact}. */
  static values(run, node, texts) {
    const found = [];
    for (let v = run.begin[node]; v < run.begin[node + 1]; v++) {
      found.push({ slot: texts[run.slot[v]], side: run.side[v], fact: run.fact[v] });
    }
    return found;
  }

  /** Return the fact of the first tensor with numbers on a side of a record; of the first at all; -1 without any. */
  static lead(run, node, side, facts) {
    let any = -1;
    for (let v = run.begin[node]; v < run.begin[node + 1]; v++) {
      if (run.side[v] !== side) continue;
      if (facts.has(run.fact[v], 3)) return run.fact[v];
      if (any < 0) any = run.fact[v];
    }
    return any;
  }

  lead(node, side) {
    const [run, own] = this.source(node);
    return Run.lead(run, own, side, this.data.facts);
  }

  /**
   * Return the latest call before this one that returned a tensor with the numbers of one that this one took; -1 without
   * one. Of a module another module, where there is one.
   */
  giver(node, fact) {
    const { facts } = this.data;
    if (node >= this.size || !facts.has(fact, 3)) return -1;
    if (!this.givers) {
      this.givers = new Map();
      for (let each = 0; each < this.size; each++) {
        for (let v = this.raw.begin[each]; v < this.raw.begin[each + 1]; v++) {
          if (this.raw.side[v] !== SIDE.OUT) continue;
          const key = facts.key(this.raw.fact[v]);
          if (!this.givers.has(key)) this.givers.set(key, []);
          this.givers.get(key).push(each);
        }
      }
    }
    const { order, kind } = this.raw;
    const around = (each) => this.at[each] <= this.at[node] && this.at[node] < this.at[each] + this.span[each];
    const latest = (nodes) => nodes.reduce((one, each) => (one < 0 || order[each] > order[one] ? each : one), -1);
    const found = (this.givers.get(facts.key(fact)) ?? []).filter((each) => order[each] < order[node] && !around(each));
    const alike = latest(found.filter((each) => kind[each] === kind[node]));
    return alike < 0 ? latest(found) : alike;
  }

  /** Return the node with a name; -1 without one. */
  find(name) {
    this.names ??= new Map(Array.from(this.raw.name, (text, node) => [text, node]));
    return this.names.get(name) ?? -1;
  }

  /** Return [label, what is beside it] as a line of the tree shows a call: modules without their parents' path. */
  shortName(node) {
    const name = this.nameOf(node);
    const kind = this.kindOf(node);
    if (kind === KIND.API) return [name.replace(/\.(forward|backward)$/, ""), ""];
    const parts = name.split(".");
    const way = parts.at(-2);
    if (parts.length < 5 || (way !== "forward" && way !== "backward")) return [name, ""];
    const path = parts.slice(1, -3).join(".");
    const above = this.parents[node];
    const around = above < 0 ? "" : this.nameOf(above).split(".").slice(1, -3).join(".");
    const short = around && path.startsWith(`${around}.`) ? path.slice(around.length) : path;
    const again = parts.at(-1) === "0" ? "" : `, call ${Number(parts.at(-1)) + 1}`;
    return [short, parts.at(-3) + again];
  }
}
