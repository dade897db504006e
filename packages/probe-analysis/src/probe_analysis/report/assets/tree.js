"use strict";
/* Show the lines of the tree. Only those in view are elements, so that a hundred thousand cost as much as forty. */

class Tree {
  static HEIGHT = 24; // of a line, as in page.css
  static TALLEST = 12e6; // browsers give up beyond some 16 million pixels: longer lists scroll in larger steps

  /** root, heads: the elements for the lines and for the titles of the columns. chosen: called with a chosen node. */
  constructor(root, heads, chosen) {
    this.root = root;
    this.heads = heads;
    this.chosen = chosen;
    this.node = -1;
    this.side = SIDE.OUT;
    this.window = make("div", { class: "window", role: "presentation" });
    this.sizer = make("div", { class: "sizer", role: "presentation" }, this.window);
    root.append(this.sizer);
    root.addEventListener("scroll", () => this.later());
    root.addEventListener("keydown", (event) => this.key(event));
    root.addEventListener("click", (event) => this.click(event));
    new ResizeObserver(() => this.later()).observe(root);
  }

  show(rows) {
    this.rows = rows;
    this.run = rows.run;
    this.compared = this.run.comparison !== null;
    this.root.parentElement.classList.toggle("compared", this.compared);
    this.root.classList.toggle("calm", !this.run.alarming);
    const titles = ["Call", "First tensor", "Min", "Max", "Mean", "Norm"];
    if (this.compared) titles.push("Inputs differ by", "Results differ by");
    this.heads.replaceChildren(...titles.map((title) => make("span", {}, title)));
    this.refresh();
  }

  /** Draw again, after the lines have changed. */
  refresh() {
    const full = this.rows.lines.length * Tree.HEIGHT;
    this.sizer.style.height = `${Math.min(full, Tree.TALLEST)}px`;
    this.root.setAttribute("aria-rowcount", this.rows.lines.length);
    this.draw();
  }

  later() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); });
  }

  get height() {
    return this.root.clientHeight;
  }

  /** How many lines one pixel of scrolling passes. */
  get step() {
    const full = this.rows.lines.length * Tree.HEIGHT;
    if (full <= Tree.TALLEST) return 1 / Tree.HEIGHT;
    return (this.rows.lines.length - this.height / Tree.HEIGHT) / (Tree.TALLEST - this.height);
  }

  draw() {
    if (!this.rows) return;
    const { lines } = this.rows;
    const top = this.root.scrollTop * this.step;
    const first = Math.max(0, Math.floor(top));
    const last = Math.min(lines.length, Math.ceil(top + this.height / Tree.HEIGHT) + 1);
    this.heads.style.paddingRight = `${10 + this.root.offsetWidth - this.root.clientWidth}px`; // the scroll bar's width
    this.window.style.height = `${Math.min(this.height, lines.length * Tree.HEIGHT)}px`;
    const elements = [];
    for (let i = first; i < last; i++) elements.push(this.line(lines[i], i, (i - top) * Tree.HEIGHT));
    if (!lines.length) elements.push(make("p", { class: "empty" }, "No call is taken by these filters."));
    this.window.replaceChildren(...elements);
    const id = `line${this.node}`;
    if (by(id)) this.root.setAttribute("aria-activedescendant", id);
    else this.root.removeAttribute("aria-activedescendant");
  }

  line(node, place, top) {
    const { run, rows } = this;
    const facts = run.data.facts;
    const fact = run.lead(node, this.side);
    const below = rows.hasBelow(node);
    const [label, more] = run.shortName(node);
    const state = run.state[node];
    const classes = ["line", `state${state}`];
    if (run.bad[node]) classes.push("bad");
    if (run.isBackward(node)) classes.push("back");
    if (!rows.takes[node]) classes.push("passed");
    if (run.kindOf(node) === KIND.NO_RECORD) classes.push("norecord");
    const depth = Math.min(run.depth[node], 30);
    const cells = [
      make("span", { class: "call", role: "gridcell", title: run.nameOf(node) },
        make("span", { class: "twisty", "aria-hidden": "true" }, below ? (rows.open[node] ? "▾" : "▸") : ""),
        make("span", { class: "name" }, label),
        more ? make("span", { class: "class" }, more) : null,
        ...this.badges(node, below && !rows.open[node])),
      this.cell(fact < 0 ? "" : facts.type(fact), "type"),
    ];
    for (const statistic of [1, 0, 2, 3]) cells.push(this.number(fact, statistic));
    if (this.compared) cells.push(...this.differences(node));
    const element = make("div", {
      class: classes.join(" "), id: `line${node}`, role: "row", "data-node": node, "aria-rowindex": place + 1,
      "aria-level": run.depth[node] + 1, "aria-selected": node === this.node ? "true" : "false",
      "aria-expanded": below ? (rows.open[node] ? "true" : "false") : null,
    }, ...cells);
    element.style.top = `${top}px`;
    if (state === STATE.DIFFERS) element.style.background = Tree.shade(run.comparison.made[run.change[node]]);
    cells[0].style.paddingLeft = `${depth * 14 + 4}px`;
    return element;
  }

  /** Return the colour of what differs: the farther, the stronger, by powers of ten from 1e-8 to 1. */
  static shade(distance) {
    const far = Math.max(0, Math.min(1, 1 + Math.log10(distance || 1e-8) / 8));
    return `color-mix(in srgb, var(--far) ${Math.round(8 + 52 * far)}%, transparent)`;
  }

  /** Say what a call is, and, of a closed one, what is inside of it. */
  badges(node, closed) {
    const { run } = this;
    const found = [];
    if (run.bad[node]) found.push(make("span", { class: "badge bad" }, "not finite"));
    else if (closed && run.badBelow[node]) found.push(make("span", { class: "badge bad faint" }, "not finite inside"));
    const words = Tree.WORDS[run.state[node]];
    if (words) found.push(make("span", { class: `badge state${run.state[node]}` }, words));
    else if (closed && run.stateBelow[node] >= STATE.CAUSE) {
      const worst = run.stateBelow[node];
      found.push(make("span", { class: `badge faint state${worst}` }, `${Tree.WORDS[worst]} inside`));
    }
    return found;
  }

  /* Those that only differ are told by their colour and numbers. */
  static WORDS = ["", "", "", "makes a difference", "in the first alone", "in the second alone"];

  cell(text, kind, title = text) {
    return make("span", { class: kind, role: "gridcell", title }, text);
  }

  number(fact, statistic) {
    if (fact < 0) return this.cell("", "number");
    const { facts } = this.run.data;
    const cell = this.cell(facts.text(fact, statistic, 5), "number", facts.text(fact, statistic, 17));
    if (facts.has(fact, statistic) && !Number.isFinite(facts.value(fact, statistic))) cell.classList.add("bad");
    return cell;
  }

  differences(node) {
    const { run } = this;
    const change = run.change[node];
    const apart = (x) => (change < 0 || !x ? "" : Tree.distance(x));
    const { brought, made } = run.comparison;
    return [
      this.cell(apart(brought[change]), "number apart"),
      this.cell(apart(made[change]), "number apart"),
    ];
  }

  /** Return a relative difference: infinite where no number could make up for it (another shape or dtype, NaN). */
  static distance(x) {
    return x === Infinity ? "∞" : Numbers.text(x, 3);
  }

  choose(node, { scroll = true } = {}) {
    this.node = node;
    if (scroll) this.scrollTo(node);
    this.draw();
    this.chosen(node);
  }

  scrollTo(node) {
    const place = this.rows.place(node);
    if (place < 0) return;
    const top = this.root.scrollTop * this.step;
    const fits = this.height / Tree.HEIGHT - 1;
    if (place < top) this.root.scrollTop = place / this.step;
    else if (place > top + fits) this.root.scrollTop = Math.ceil((place - fits) / this.step);
  }

  click(event) {
    const line = event.target.closest(".line");
    if (!line) return;
    const node = Number(line.dataset.node);
    if (event.target.closest(".twisty") || (node === this.node && event.target.closest(".call"))) this.toggle(node);
    this.choose(node, { scroll: false });
  }

  toggle(node) {
    if (!this.rows.hasBelow(node)) return;
    this.rows.set(node, !this.rows.open[node]);
    this.refresh();
  }

  key(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || !this.rows.lines.length) return;
    const { rows, run, node } = this;
    const place = rows.place(node);
    const page = Math.max(1, Math.floor(this.height / Tree.HEIGHT) - 1);
    const to = (i) => this.choose(rows.lines[Math.max(0, Math.min(rows.lines.length - 1, i))]);
    const below = node >= 0 && rows.hasBelow(node);
    switch (event.key) {
      case "ArrowDown": to(place + 1); break;
      case "ArrowUp": to(place - 1); break;
      case "PageDown": to(place + page); break;
      case "PageUp": to(place - page); break;
      case "Home": to(0); break;
      case "End": to(rows.lines.length - 1); break;
      case "ArrowRight": if (below && !rows.open[node]) this.toggle(node); else if (below) to(place + 1); break;
      case "ArrowLeft":
        if (below && rows.open[node]) this.toggle(node);
        else if (node >= 0 && run.parents[node] >= 0) this.choose(run.parents[node]);
        break;
      case "Enter": case " ": if (node >= 0) this.toggle(node); break;
      default: return;
    }
    event.preventDefault();
  }
}
