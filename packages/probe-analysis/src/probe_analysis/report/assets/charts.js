"use strict";
/* Draw norms, ranges and differences, call after call and step after step, with uPlot. */

const Charts = (() => {
  const MOST_RANKS = 12;
  /* How far apart the marks of calls and steps may be: there is nothing between two of them. */
  const WHOLE = [...Array(9).keys()].flatMap((power) => [1, 2, 5].map((digit) => digit * 10 ** power));
  let plots = [];

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  }

  /** Draw the charts of a run. Each point is a call that is in view. go: called with (number of a run, node). */
  function show(root, run, rows, side, chosen, go) {
    clear();
    const nodes = [];
    for (let i = 0; i < run.size; i++) if (rows.takes[i] && run.raw.order[i] >= 0) nodes.push(i);
    nodes.sort((a, b) => run.raw.order[a] - run.raw.order[b]);
    root.replaceChildren(make("p", { class: "quiet" },
      `Each point is one of the ${Numbers.count(nodes.length, "call")} that the filters take, in the order in which they `
      + "ended. Click a point to see its call; drag to look closer, double-click to see all again."));
    if (!nodes.length) return;
    const facts = nodes.map((node) => run.lead(node, side));
    const of = side === SIDE.OUT ? "result" : side === SIDE.IN ? "input" : "parameter";
    normChart(root, run, nodes, facts, side, of, go);
    rangeChart(root, run, nodes, facts, of, go);
    if (run.comparison) differenceChart(root, run, nodes, go);
    const node = chosen >= 0 ? chosen : first(run);
    if (node >= 0 && siblings(run).length > 1) {
      const section = make("section", { class: "chart" });
      root.append(section);
      plots.push(overSteps(section, run, node, `: ${run.nameOf(node)}`));
    }
  }

  /** Return the first module's call with a result, for the chart over the steps while no call is chosen. */
  function first(run) {
    for (let i = 0; i < run.size; i++) if (run.raw.kind[i] === KIND.MODULE && run.lead(i, SIDE.OUT) >= 0) return i;
    return run.size ? 0 : -1;
  }

  function normChart(root, run, nodes, facts, side, of, go) {
    const data = run.data.facts;
    const norm = (fact) => (fact >= 0 && data.has(fact, 3) ? positive(data.value(fact, 3)) : null);
    const back = nodes.map((node) => run.isBackward(node));
    const series = [
      { label: "forward", values: facts.map((fact, i) => (back[i] ? null : norm(fact))), stroke: "forward" },
      { label: "backward", values: facts.map((fact, i) => (back[i] ? norm(fact) : null)), stroke: "backward" },
    ];
    if (run.comparison) {
      const there = nodes.map((node) => {
        const partner = run.partner(node);
        return partner ? norm(Run.lead(...partner, side, data)) : null;
      });
      series.unshift({ label: "second run", values: there, stroke: "there", ring: true }); // below the others
    }
    const broken = nodes.map((node) => (run.bad[node] ? 1 : null));
    if (broken.some(Boolean)) series.push({ label: "not finite", values: broken, stroke: "bad", scale: "flag" });
    scatter(root, `Norm of the first ${of} of each call`, run, nodes, series, { log: true }, go);
  }

  function rangeChart(root, run, nodes, facts, of, go) {
    const data = run.data.facts;
    const finite = (fact, statistic) => {
      if (fact < 0 || !data.has(fact, statistic)) return null;
      const value = data.value(fact, statistic);
      return Number.isFinite(value) ? value : null;
    };
    const series = [
      { label: "largest", values: facts.map((fact) => finite(fact, 0)), stroke: "forward" },
      { label: "smallest", values: facts.map((fact) => finite(fact, 1)), stroke: "backward" },
      { label: "mean", values: facts.map((fact) => finite(fact, 2)), stroke: "there" },
    ];
    scatter(root, `Range of the first ${of} of each call`, run, nodes, series, { asinh: true }, go);
  }

  function differenceChart(root, run, nodes, go) {
    const { made, brought, allowed } = run.comparison;
    const of = (column) => nodes.map((node) => (run.change[node] < 0 ? null : positive(column[run.change[node]])));
    const series = [
      { label: "inputs differ by", values: of(brought), stroke: "backward" },
      { label: "results differ by", values: of(made), stroke: "bad" },
      { label: "may follow from inputs and rounding", values: of(allowed), stroke: "faint" },
    ];
    scatter(root, "Relative difference from the second run", run, nodes, series, { log: true }, go);
  }

  function positive(x) {
    return x > 0 && Number.isFinite(x) ? x : null;
  }

  function scatter(root, title, run, nodes, series, { log, asinh }, go) {
    const present = series.filter((each) => each.values.some((value) => value !== null));
    const box = make("section", { class: "chart" }, make("h2", {}, title));
    root.append(box);
    if (!present.length) {
      box.append(make("p", { class: "quiet" }, "There are no numbers to draw."));
      return;
    }
    const pointed = make("p", { class: "pointed", "aria-hidden": "true" }, "\u00a0");
    const size = nodes.length > 20000 ? 2 : nodes.length > 2000 ? 3 : 5;
    let at = null;
    const options = {
      width: Math.max(400, root.clientWidth - 32),
      height: 240,
      scales: {
        x: { time: false },
        y: log ? { distr: 3 } : asinh ? { distr: 4, asinh: 1 } : {},
        flag: { range: [0, 1.04] },
      },
      axes: axes(log || asinh),
      cursor: { points: { size: 9 }, focus: { prox: 30 } },
      legend: { live: false },
      series: [{ label: "call" }, ...present.map((each) => ({
        label: each.label, scale: each.scale ?? "y", stroke: colour(each.stroke), fill: colour(each.stroke),
        paths: () => null, points: { show: false }, // drawn below
      }))],
      hooks: {
        drawSeries: [(plot, i) => dots(plot, i, present[i - 1].ring ? size + 3 : size)],
        setCursor: [(plot) => {
          at = plot.cursor.idx;
          pointed.textContent = at === null || at === undefined ? "\u00a0" : describe(run, nodes[at], present, at);
        }],
        ready: [(plot) => plot.over.addEventListener("click", () => { if (at !== null) go(run.number, nodes[at]); })],
      },
    };
    const plot = new uPlot(options, [nodes.map((_, i) => i), ...present.map((each) => each.values)], box);
    box.append(pointed);
    plots.push(plot);
  }

  /** Draw the points of a series as squares: uPlot's own circles take seconds where there are a hundred thousand. */
  function dots(plot, i, size) {
    const { ctx, bbox } = plot;
    const { scale, stroke } = plot.series[i];
    const values = plot.data[i];
    const edge = size * devicePixelRatio;
    const view = plot.scales.x;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top - edge, bbox.width + edge, bbox.height + 2 * edge);
    ctx.clip();
    ctx.fillStyle = typeof stroke === "function" ? stroke(plot, i) : stroke;
    for (let at = Math.max(0, Math.floor(view.min)); at < values.length && at <= view.max; at++) {
      if (values[at] === null) continue;
      const x = plot.valToPos(at, "x", true);
      const y = plot.valToPos(values[at], scale, true);
      ctx.fillRect(Math.round(x - edge / 2), Math.round(y - edge / 2), edge, edge);
    }
    ctx.restore();
  }

  function describe(run, node, series, at) {
    const numbers = series.filter((each) => !each.scale && each.values[at] !== null)
      .map((each) => `${each.label} ${Numbers.text(each.values[at], 5)}`);
    return `${run.nameOf(node)}:  ${numbers.join(", ") || "no numbers"}${run.bad[node] ? ", not finite" : ""}`;
  }

  function axes(short) {
    const ink = { stroke: colour("ink"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1 } };
    const values = (_, splits) => splits.map((x) => (x === null ? "" : Numbers.text(x, short ? 2 : 4)));
    const whole = (_, splits) => splits.map((x) => (Number.isInteger(x) ? x.toLocaleString("en-US") : ""));
    const powers = { filter: (_, splits) => splits.map((x) => (isPower(x) ? x : null)) };
    return [{ ...ink, values: whole, incrs: WHOLE }, { ...ink, values, size: 72, grid: { ...ink.grid, ...(short ? powers : {}) } }];
  }

  /** Return whether a number is 0 or a power of ten, of either sign. */
  function isPower(x) {
    const power = Math.log10(Math.abs(x));
    return x === 0 || Math.abs(power - Math.round(power)) < 1e-9;
  }

  /** Return the runs of the same dump and mode, by step. */
  function siblings(run) {
    return run.data.runs.filter((each) => each.raw.dump === run.raw.dump && each.raw.mode === run.raw.mode);
  }

  /** Draw one call over the steps, a line for each rank. title: more words for it. Return what can be destroyed. */
  function overSteps(root, run, node, title = "") {
    const runs = siblings(run);
    if (runs.length < 2) return null;
    const steps = [...new Set(runs.map((each) => each.raw.step ?? 0))].sort((a, b) => a - b);
    const ranks = [...new Set(runs.map((each) => each.raw.rank))].sort((a, b) => a - b);
    const [from, own] = run.source(node);
    const name = from.name[own];
    const table = { norm: [], max: [], min: [] };
    for (const rank of ranks.slice(0, MOST_RANKS)) {
      const columns = { norm: [], max: [], min: [] };
      for (const step of steps) {
        const each = runs.find((one) => one.raw.rank === rank && (one.raw.step ?? 0) === step);
        const place = each ? each.find(name) : -1;
        const fact = place < 0 ? -1 : Run.lead(each, place, SIDE.OUT, run.data.facts);
        for (const [key, statistic] of [["norm", 3], ["max", 0], ["min", 1]]) {
          const value = fact >= 0 && run.data.facts.has(fact, statistic) ? run.data.facts.value(fact, statistic) : null;
          columns[key].push(Number.isFinite(value) ? value : null);
        }
      }
      for (const key of Object.keys(table)) table[key].push(columns[key]);
    }
    const many = ranks.length > MOST_RANKS ? ` The first ${MOST_RANKS} ranks are drawn.` : "";
    const each = ranks.length > 1 ? "; a line for each rank" : "";
    root.append(make(title ? "h2" : "h3", {}, `Over the steps${title}`), make("p", { class: "quiet" }, `Its first result in each step${each}.${many}`));
    const found = [
      lines(root, "Norm", steps, ranks, [table.norm]),
      lines(root, "Largest and smallest", steps, ranks, [table.max, table.min]),
    ];
    return { destroy: () => found.forEach((plot) => plot?.destroy()) };
  }

  function lines(root, title, steps, ranks, tables) {
    const words = tables.length > 1 ? ["largest", "smallest"] : ["norm"];
    const labels = tables.flatMap((table, t) => table.map((_, i) => [words[t], ranks[i] === null ? "" : `rank ${ranks[i]}`].filter(Boolean).join(", ")));
    return plotLines(root, title, steps, labels, tables.flat(), { height: 150, each: ranks.length });
  }

  /** Draw columns over the steps as long as the view is there, on a logarithmic scale; what is not finite is a gap. */
  function curves(root, title, steps, labels, columns) {
    const drawn = columns.map((column) => [...column].map(positive));
    plots.push(plotLines(root, title, [...steps], labels, drawn, { height: 240, each: labels.length, log: true }));
  }

  /** each: so many lines are solid, and those after them dashed in the same colours. */
  function plotLines(root, title, steps, labels, columns, { height, each, log }) {
    if (!columns.some((column) => column.some((value) => value !== null))) return null;
    const palette = ["forward", "backward", "there", "bad", "alone", "differs", "quiet", "ink"].map(colour);
    const size = steps.length > 100 ? 0 : 5;
    const options = {
      width: Math.max(280, root.clientWidth - 8),
      height,
      title,
      scales: { x: { time: false }, y: log ? { distr: 3 } : {} },
      axes: axes(log),
      series: [{ label: "step" }, ...labels.map((label, i) => ({
        label, stroke: palette[(i % each) % palette.length], width: 1.5, dash: i < each ? undefined : [4, 3],
        points: { show: size > 0, size, fill: colour("paper") }, value: (_, x) => (x === null ? "–" : Numbers.text(x, 5)),
      }))],
    };
    return new uPlot(options, [steps, ...columns], root);
  }

  function clear() {
    for (const plot of plots) plot?.destroy();
    plots = [];
  }

  return { show, overSteps, curves, clear, MOST_RANKS };
})();
