"use strict";
/* Put the views together: choose a run, filter its calls, follow links between the findings, the tree and the charts. */

const Page = (() => {
  const state = { run: null, rows: null, tab: "calls", keptRows: new Map() };
  let data, tree, detail;

  async function begin() {
    data = await Columns.load(by("data"));
    data.facts = new Facts(data.facts, data.texts);
    data.runs = data.runs.map((raw, number) => new Run(raw, number, data));
    by("dumps").textContent = data.dumps.length > 1 ? `${data.dumps[0]}  compared with  ${data.dumps[1]}` : data.dumps[0];
    document.title = `Probe report: ${data.dumps.join(" and ")}`;
    tree = new Tree(by("tree"), by("heads"), (node) => detail.show(state.run, node));
    detail = new Detail(by("detail"), go);
    Findings.show(by("findings"), data, go);
    by("tabWatched").hidden = !data.watched.length;
    if (data.runs.length) {
      const begins = data.findings.find((finding) => finding.node >= 0);
      choose(begins ? begins.run : 0);
      if (begins) reveal(begins.node);
      else detail.show(state.run, -1);
    } else {
      for (const id of ["toolbar", "tabCalls", "tabCharts", "tabCoverage"]) by(id).hidden = true;
      tab("watched");
    }
    listen();
    by("waiting").remove();
    requestAnimationFrame(() => requestAnimationFrame(() => {
      document.documentElement.dataset.ready = Math.round(performance.now()); // for who measures
    }));
  }

  /* ---- which run ---- */

  /** Return the runs that can be looked at: those of the first dump, and those that the second alone has. */
  function choices() {
    const compared = new Set(data.comparisons.map((each) => each.b));
    return data.runs.filter((run) => run.raw.dump === 0 || !compared.has(run.number));
  }

  function stepName({ raw }) {
    const names = [raw.dump ? "second dump:" : "", raw.mode ?? "", raw.step ?? "–"];
    return names.filter((part) => part !== "").join(" ");
  }

  function choose(number) {
    const run = data.runs[number].prepare();
    state.run = run;
    const steps = new Map(choices().map((each) => [stepName(each), each]));
    fill(by("step"), [...steps].map(([name, each]) => [each.number, name]), steps.get(stepName(run)).number);
    const ranks = choices().filter((each) => stepName(each) === stepName(run));
    fill(by("rank"), ranks.map((each) => [each.number, each.raw.rank ?? "–"]), number);
    by("stepChoice").hidden = steps.size < 2;
    by("rankChoice").hidden = ranks.length < 2;
    by("differenceChoice").hidden = run.comparison === null;
    if (!state.keptRows.has(number)) state.keptRows.set(number, new Rows(run));
    state.rows = state.keptRows.get(number);
    tree.node = -1;
    tree.show(state.rows);
    filter();
  }

  /** Go to another step: to the same rank of it, where it is there. */
  function chooseStep(number) {
    const asked = data.runs[number];
    const same = choices().find((each) => stepName(each) === stepName(asked) && each.raw.rank === state.run.raw.rank);
    keepingCall(() => choose((same ?? asked).number));
  }

  /** Keep the same call chosen in another run. */
  function keepingCall(change) {
    const name = tree.node >= 0 && tree.node < state.run.size ? state.run.raw.name[tree.node] : -1;
    change();
    const node = name < 0 ? -1 : state.run.find(name);
    if (node >= 0) reveal(node);
    else detail.show(state.run, -1);
  }

  function fill(select, options, chosen) {
    select.replaceChildren(...options.map(([value, text]) => make("option", { value, selected: value === chosen }, String(text))));
    select.value = String(chosen);
  }

  /* ---- which calls ---- */

  function filter() {
    state.rows.apply({
      search: by("search").value,
      forward: by("forward").checked,
      backward: by("backward").checked,
      broken: by("broken").checked,
      difference: state.run.comparison ? Number(by("difference").value) : 0,
    });
    tree.side = Number(by("side").value);
    tree.refresh();
    const { taken, run } = state.rows;
    by("amount").textContent = state.rows.filtered
      ? `${taken.toLocaleString("en-US")} of ${Numbers.count(run.calls, "call")}` : Numbers.count(run.calls, "call");
    if (state.tab === "charts") drawCharts();
    if (state.tab === "coverage") Coverage.show(by("coverage"), run);
  }

  function clearFilters() {
    by("search").value = "";
    by("forward").checked = by("backward").checked = true;
    by("broken").checked = false;
    by("difference").value = "0";
    filter();
  }

  /** Show a call, wherever it is; filters that leave it out are taken away. */
  function go(number, node) {
    tab("calls");
    if (number !== state.run.number) choose(number);
    if (!state.rows.takes[node] && !state.rows.shown[node]) clearFilters();
    reveal(node);
    by("tree").focus({ preventScroll: true });
  }

  function reveal(node) {
    state.rows.reveal(node);
    tree.refresh();
    tree.choose(node);
  }

  /* ---- views ---- */

  function drawCharts() {
    Charts.show(by("charts"), state.run, state.rows, Number(by("side").value), tree.node, go);
  }

  function tab(name) {
    state.tab = name;
    for (const button of document.querySelectorAll("[role=tab]")) {
      const chosen = button.getAttribute("aria-controls") === name;
      button.setAttribute("aria-selected", String(chosen));
      button.tabIndex = chosen ? 0 : -1;
      by(button.getAttribute("aria-controls")).hidden = !chosen;
    }
    by("folding").hidden = name !== "calls";
    if (name === "charts") drawCharts();
    else Charts.clear();
    if (name === "coverage") Coverage.show(by("coverage"), state.run);
    if (name === "watched") Watched.show(by("watched"), data);
    if (name === "calls") tree.draw();
  }

  function listen() {
    by("step").addEventListener("change", (event) => chooseStep(Number(event.target.value)));
    by("rank").addEventListener("change", (event) => keepingCall(() => choose(Number(event.target.value))));
    for (const id of ["forward", "backward", "broken", "difference", "side"]) by(id).addEventListener("change", filter);
    let wait = 0;
    by("search").addEventListener("input", () => {
      clearTimeout(wait);
      wait = setTimeout(filter, 80);
    });
    for (const [id, open] of [["unfold", true], ["fold", false]]) {
      by(id).addEventListener("click", () => {
        state.rows.setAll(open);
        tree.refresh();
        tree.scrollTo(tree.node); // the chosen call stays in view
      });
    }
    by("next").addEventListener("click", nextFinding);
    const buttons = [...document.querySelectorAll("[role=tab]")].filter((button) => !button.hidden);
    buttons.forEach((button, i) => {
      button.addEventListener("click", () => tab(button.getAttribute("aria-controls")));
      button.addEventListener("keydown", (event) => {
        const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!move) return;
        const to = buttons[(i + move + buttons.length) % buttons.length];
        to.focus();
        to.click();
      });
    });
    document.addEventListener("keydown", shortcut);
    const redraw = () => {
      if (state.tab === "charts") drawCharts();
      if (state.tab === "watched") Watched.show(by("watched"), data);
    };
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      redraw();
      if (state.run) detail.show(state.run, tree.node);
    });
    let resizing = 0;
    addEventListener("resize", () => {
      clearTimeout(resizing);
      resizing = setTimeout(redraw, 200);
    });
  }

  function shortcut(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const typing = ["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName);
    if (event.key === "Escape" && event.target === by("search")) by("tree").focus();
    if (typing) return;
    if (event.key === "/") by("search").focus();
    else if (event.key === "n" && state.tab === "calls") nextFinding();
    else return;
    event.preventDefault();
  }

  function nextFinding() {
    const node = state.rows.nextFinding(tree.node);
    if (node >= 0) reveal(node);
    else by("amount").textContent = "No call in view differs by itself or is not finite.";
  }

  return { begin };
})();

Page.begin().catch((error) => {
  by("waiting").textContent = `The data of this page cannot be read: ${error.message}`;
  throw error;
});
