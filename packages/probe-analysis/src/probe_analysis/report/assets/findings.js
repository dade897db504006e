"use strict";
/* Show the findings, the answer first: how two dumps differ, and where numbers stop being finite. */

const Findings = (() => {
  const HEADS = {
    verdict: { same: "The dumps are the same", "within tolerance": "The same, within what rounding explains", different: "The dumps differ", unknown: "Not compared" },
    finite: { same: "No NaN or infinity but what was asked for", different: "Numbers stop being finite", unknown: "Not checked" },
    watched: { same: "All watched steps are finite", different: "Watched numbers are not finite" },
  };

  /** Fill an element with the findings. go: called with (number of a run, node). */
  function show(root, data, go) {
    const order = [...data.findings];
    root.replaceChildren(...order.map((finding) => card(finding, go)));
    if (data.unread.length) {
      root.append(make("article", { class: "finding different" },
        make("h2", {}, "What cannot be read"),
        make("ul", {}, ...data.unread.map(([label, why]) => make("li", {}, `${label}: ${why}`)))));
    }
  }

  function card(finding, go) {
    const { kind, state, title, sentence, line, modules, run, node, notes, lists } = finding;
    const parts = [
      make("h2", {}, HEADS[kind][state], ...(title ? [" ", make("span", { class: "where" }, title)] : [])),
      make("p", { class: "sentence" }, sentence),
    ];
    if (line) parts.push(make("p", { class: "source" }, make("code", {}, line)));
    if (modules.length) parts.push(make("p", { class: "quiet" }, `inside ${modules.join(", in ")}`));
    if (node >= 0) parts.push(make("p", {}, make("button", { onclick: () => go(run, node) }, "show this call")));
    const more = [...notes.map((note) => make("p", { class: "quiet" }, note)), ...lists.map((list) => listing(list, go))];
    if (more.length) parts.push(...more);
    return make("article", { class: `finding ${state.replace(" ", "-")}`, "data-kind": kind }, ...parts);
  }

  function listing([title, rows], go) {
    const details = make("details", {}, make("summary", {}, title));
    details.addEventListener("toggle", () => { // made when it is opened
      if (details.children.length > 1) return;
      details.append(make("ol", {}, ...rows.map(([text, run, node]) => make("li", {},
        node < 0 ? text : make("button", { class: "link", onclick: () => go(run, node) }, text)))));
    });
    return details;
  }

  return { show };
})();
