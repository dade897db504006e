"use strict";
/* Show all that is known about one call: its tensors, here and there, its other arguments, and where it was made. */

class Detail {
  /** go: called with (number of a run, node) when a link to another call is followed. */
  constructor(root, go) {
    this.root = root;
    this.go = go;
  }

  show(run, node) {
    this.plot?.destroy();
    this.plot = null;
    if (node < 0) {
      this.root.replaceChildren(make("p", { class: "quiet" },
        "Choose a call, by a click or with the arrow keys, to see all of its tensors, its arguments and the lines of "
        + "code that made it."));
      return;
    }
    const [source, own] = run.source(node);
    this.root.replaceChildren(
      make("h2", {}, run.nameOf(node)),
      this.around(run, node),
      ...this.notes(run, node, source, own),
      this.tensors(run, node, source, own),
      ...this.argumentsOf(run, node, source, own),
      ...this.stack(run, node),
      make("div", { class: "steps" }),
    );
    this.plot = Charts.overSteps(this.root.lastElementChild, run, node);
    this.root.scrollTop = 0;
  }

  around(run, node) {
    const path = [];
    for (let above = run.parents[node]; above >= 0 && path.length < 40; above = run.parents[above]) path.push(above);
    if (!path.length) return make("p", { class: "quiet" }, "inside of no recorded module");
    const links = path.map((above) => make("button", {
      class: "link", title: run.nameOf(above), onclick: () => this.go(run.number, above),
    }, run.nameOf(above)));
    return make("p", { class: "around" }, "inside ", ...links.flatMap((link, i) => (i ? [", in ", link] : [link])));
  }

  notes(run, node, source, own) {
    const { texts } = run.data;
    const found = [];
    const say = (kind, text) => found.push(make("p", { class: `note ${kind}` }, text));
    if (source.note[own]) say("", `This call ${texts[source.note[own]]}.`);
    const state = run.state[node];
    if (state === STATE.FIRST_ALONE) say("state4", "Only the first run has this call.");
    if (state === STATE.SECOND_ALONE) say("state5", "Only the second run has this call.");
    const change = run.change[node];
    if (change >= 0) {
      const { cause, made, brought, allowed, pair } = run.comparison;
      const there = texts[run.other.name[pair[node]]];
      if (there !== run.nameOf(node)) say("", `In the second run it is ${there}.`);
      say(`state${state}`, Detail.CAUSES[cause[change]]);
      const explained = Number.isFinite(allowed[change]) ? `; ${Numbers.text(allowed[change], 3)} may follow from what it took and from rounding` : "";
      say("quiet", `What it took ${Detail.amount(brought[change])}, what it returned ${Detail.amount(made[change])}${explained}.`);
      for (const [at, text] of run.comparison.arguments) if (at === node) say(`state${STATE.CAUSE}`, `Argument ${text}.`);
    } else if (state === STATE.SAME) say("quiet", "It is the same in both runs, as far as it was recorded.");
    return found;
  }

  static CAUSES = [
    "It differs, by no more than follows from what it took and from rounding.",
    "It makes a difference: it is called with other arguments.",
    "It makes a difference: its module has other parameters.",
    "It makes a difference: it gets another input, though what was recorded before it agrees.",
    "It makes a difference: what it takes agrees, and what it returns does not.",
  ];

  static amount(x) {
    if (x === 0) return "is the same";
    return x === Infinity ? "is of another shape or dtype, or finite in one run alone" : `differs by ${Numbers.text(x, 3)}`;
  }

  tensors(run, node, source, own) {
    const { texts, facts } = run.data;
    const here = Run.values(source, own, texts);
    const partner = run.partner(node);
    const there = partner ? Run.values(...partner, texts) : [];
    const far = this.distances(run, node);
    const body = make("tbody", {});
    const pairs = Detail.paired(here, there, Boolean(run.comparison?.across));
    let side = -1;
    for (const [one, two] of pairs) {
      const each = one ?? two;
      if (each.side !== side) {
        side = each.side;
        body.append(make("tr", { class: "side" }, make("th", { colspan: 5, scope: "rowgroup" },
          ["took", "parameters", "returned"][side])));
      }
      const apart = far.get(`${each.side} ${each.slot}`);
      body.append(this.heading(facts, each, one ? "" : ", in the second run alone"));
      const giver = one && side === SIDE.IN ? run.giver(node, one.fact) : -1;
      if (giver >= 0) body.append(this.given(run, giver));
      if (one) body.append(this.numbers(facts, one, apart && two ? "first" : ""));
      if (two && (apart || !one)) {
        if (one && (facts.type(one.fact) !== facts.type(two.fact) || facts.isBroken(two.fact))) {
          body.append(this.heading(facts, two, ", in the second run"));
        }
        body.append(this.numbers(facts, two, "second"));
      }
      if (apart) body.append(make("tr", { class: "apart" }, make("td", { colspan: 5 }, apart)));
    }
    if (!pairs.length) return make("p", { class: "quiet" }, "It has no tensors.");
    const head = ["", "Min", "Max", "Mean", "Norm"].map((title) => make("th", { scope: "col" }, title));
    return make("div", { class: "wide" }, make("table", { class: "tensors" }, make("thead", {}, make("tr", {}, ...head)), body));
  }

  /** Return the line that says which tensor it is, and what is known besides its numbers. */
  heading(facts, { slot, fact }, more) {
    const words = [facts.word("broken", fact), facts.word("more", fact)].filter(Boolean);
    const sum = facts.word("md5", fact);
    if (facts.marks[fact] & 512) words.push("requires grad");
    if (facts.marks[fact] & 256) words.push("saved");
    if (sum) words.push(`checksum ${sum}`);
    return make("tr", { class: "slot" }, make("th", { colspan: 5, scope: "rowgroup" },
      slot + more, make("span", { class: "type" }, facts.type(fact)),
      words.length ? make("div", { class: facts.isBroken(fact) ? "more bad" : "more" }, words.join(", ")) : null));
  }

  /** Return the line that leads to the call that gave a tensor, and says whether that differs. */
  given(run, giver) {
    const link = make("button", { class: "link", onclick: () => this.go(run.number, giver) }, run.nameOf(giver));
    const state = { [STATE.SAME]: ", which is the same in both runs", [STATE.DIFFERS]: ", which differs",
      [STATE.CAUSE]: ", which makes a difference" }[run.state[giver]] ?? "";
    return make("tr", { class: "given" }, make("td", { colspan: 5 }, "given by ", link, state));
  }

  numbers(facts, { fact }, which) {
    const cells = [1, 0, 2, 3].map((statistic) => make("td", {
      class: facts.has(fact, statistic) && !Number.isFinite(facts.value(fact, statistic)) ? "number bad" : "number",
      title: facts.text(fact, statistic, 17),
    }, facts.text(fact, statistic, 7)));
    return make("tr", { class: which }, make("th", { scope: "row", class: "which" }, which), ...cells);
  }

  /** Return, for each slot that differs, how far it is in words. */
  distances(run, node) {
    const found = new Map();
    if (!run.comparison || run.change[node] < 0) return found;
    const { values } = run.comparison;
    const { texts } = run.data;
    this.begins ??= new Map();
    if (!this.begins.has(values)) {
      const begin = new Map();
      values.node.forEach((each, i) => { if (!begin.has(each)) begin.set(each, i); });
      this.begins.set(values, begin);
    }
    for (let i = this.begins.get(values).get(node) ?? values.node.length; values.node[i] === node; i++) {
      const words = [texts[values.what[i]]];
      if (Number.isFinite(values.relative[i])) words.push(`relative difference ${Numbers.text(values.relative[i], 3)}`);
      if (!Number.isNaN(values.cosine[i])) {
        words.push(`element by element: largest difference ${Numbers.text(values.maxAbs[i], 4)}, relative `
          + `${Numbers.text(values.maxRel[i], 3)}, cosine ${Numbers.text(values.cosine[i], 7)}, `
          + (Number.isNaN(values.maxUlp[i]) ? "" : `${Numbers.text(values.maxUlp[i], 3)} ULP, `)
          + `the difference is ${Numbers.text(100 * values.norm[i], 3)} % of its norm`);
      }
      found.set(`${values.side[i]} ${texts[values.slot[i]]}`, words.filter(Boolean).join("; "));
    }
    return found;
  }

  /** Return the tensors of two records pair by pair, as the comparison does: by slot, or by order across frameworks. */
  static paired(here, there, across) {
    const found = [];
    for (const side of [SIDE.IN, SIDE.PARAMETER, SIDE.OUT]) {
      const ones = here.filter((value) => value.side === side);
      const twos = there.filter((value) => value.side === side);
      if (across) {
        for (let i = 0; i < Math.max(ones.length, twos.length); i++) found.push([ones[i] ?? null, twos[i] ?? null]);
        continue;
      }
      const rest = new Map(twos.map((value) => [value.slot, value]));
      for (const one of ones) {
        found.push([one, rest.get(one.slot) ?? null]);
        rest.delete(one.slot);
      }
      for (const two of rest.values()) found.push([null, two]);
    }
    return found;
  }

  argumentsOf(run, node, source, own) {
    const { texts } = run.data;
    const here = texts[source.arguments[own]];
    if (!here) return [];
    return [make("h3", {}, "Other arguments"), make("pre", { class: "arguments" }, here)];
  }

  stack(run, node) {
    const { frames, own } = run.stackOf(node);
    if (!frames.length) return [make("p", { class: "quiet" }, "Where it was called is not recorded.")];
    const { texts } = run.data;
    const lines = frames.map((frame, i) => make("li", { class: i === own ? "own" : "" }, ...Detail.frame(texts[frame])));
    const title = run.isBackward(node) ? "Where its forward call was made" : "Where it was called";
    return [make("h3", {}, title), make("p", { class: "quiet" }, "Innermost first; the first line of your own code is marked."),
      make("ol", { class: "stack" }, ...lines)];
  }

  /** Return a frame as elements: place, function, and the line of code. */
  static frame(text) {
    const parts = /^File (.*?), line (\d+), in (.*?), ?(.*)$/s.exec(text);
    if (!parts) return [text];
    const [, file, line, where, code] = parts;
    return [
      make("span", { class: "place", title: file }, `${file.split("/").slice(-2).join("/")}:${line}`),
      ` in ${where}`,
      code ? make("code", {}, code) : null,
    ].filter(Boolean);
  }
}
