"use strict";
/* Choose the lines of the tree that are in view: what the filters take, and what is open. */

class Rows {
  constructor(run) {
    this.run = run;
    this.open = new Uint8Array(run.count);
    this.takes = new Uint8Array(run.count).fill(1); // the filters take the node
    this.shown = new Uint8Array(run.count).fill(1); // they take it, or something below it
    this.taken = 0; // how many calls the filters take
    this.filtered = false;
    this.openSome();
    this.list();
  }

  /** Open level after level as long as the lines stay few. */
  openSome(most = 300) {
    const { run } = this;
    const lines = [];
    for (let i = 0; i < run.count; i++) lines[run.depth[i]] = (lines[run.depth[i]] ?? 0) + 1;
    let sum = lines[0] ?? 0;
    let depth = 0;
    while (depth + 1 < lines.length && sum + lines[depth + 1] <= most) sum += lines[++depth];
    for (let i = 0; i < run.count; i++) this.open[i] = run.depth[i] < depth ? 1 : 0;
  }

  /** Take what `filter` says, and open what is around it. */
  apply(filter) {
    const { run, takes, shown } = this;
    const words = filter.search.toLowerCase().split(/\s+/).filter(Boolean);
    this.filtered = words.length > 0 || !filter.forward || !filter.backward || filter.broken || filter.difference > 0;
    const match = words.map((word) => Rows.finder(run, word));
    this.taken = 0;
    for (let i = 0; i < run.count; i++) {
      const back = run.isBackward(i);
      let yes = back ? filter.backward : filter.forward;
      yes = yes && (!filter.broken || run.bad[i] === 1) && run.state[i] >= filter.difference;
      yes = yes && match.every((finds) => finds(i));
      takes[i] = yes ? 1 : 0;
      if (yes && run.kindOf(i) !== KIND.NO_RECORD) this.taken++;
    }
    shown.set(takes);
    const narrow = words.length > 0 || filter.broken || filter.difference > 0;
    for (let i = run.count - 1; i >= 0; i--) {
      const node = run.preorder[i];
      const above = run.parents[node];
      if (shown[node] && above >= 0) {
        shown[above] = 1;
        if (narrow) this.open[above] = 1;
      }
    }
    this.list();
  }

  /** Return what tells whether a word is in the name of a node, or in its stack. */
  static finder(run, word) {
    const { texts, stacks } = run.data;
    const inStack = stacks.map((stack) => stack.frames.some((frame) => texts[frame].toLowerCase().includes(word)));
    return (node) => {
      const [source, own] = run.source(node);
      return texts[source.name[own]].toLowerCase().includes(word) || inStack[source.stack[own]];
    };
  }

  /** Write down the lines, from the top to the bottom. */
  list() {
    const { run, open, shown } = this;
    const lines = [];
    for (let place = 0; place < run.count; ) {
      const node = run.preorder[place];
      if (!shown[node]) { place += run.span[node]; continue; }
      lines.push(node);
      place += open[node] ? 1 : run.span[node];
    }
    this.lines = lines;
  }

  hasBelow(node) {
    const { run } = this;
    return run.span[node] > 1;
  }

  set(node, open) {
    this.open[node] = open ? 1 : 0;
    this.list();
  }

  setAll(open) {
    this.open.fill(open ? 1 : 0);
    this.list();
  }

  /** Open all that is around a node. Return whether it is in view then. */
  reveal(node) {
    let above = this.run.parents[node];
    while (above >= 0) {
      this.open[above] = 1;
      above = this.run.parents[above];
    }
    this.list();
    return this.shown[node] === 1;
  }

  place(node) {
    return this.lines.indexOf(node);
  }

  /** Return the next node after one, in the order of the tree, that is a finding; -1 without one. */
  nextFinding(after) {
    const { run } = this;
    const begin = after < 0 ? 0 : run.at[after] + 1;
    for (let i = 0; i < run.count; i++) {
      const node = run.preorder[(begin + i) % run.count];
      if (this.takes[node] && ((run.bad[node] && run.alarming) || run.state[node] >= STATE.CAUSE)) return node;
    }
    return -1;
  }
}
