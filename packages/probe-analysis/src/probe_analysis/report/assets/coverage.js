"use strict";
/* Show how a run was recorded, and what was not seen. */

const Coverage = (() => {
  function show(root, run) {
    const { sentence, tables } = run.coverage;
    const order = ["Not seen", "Failures of Probe's own", "Filters that matched nothing", "Functions that were not watched", "Counts", "The run"];
    const present = order.filter((title) => tables[title]?.length);
    root.replaceChildren(
      make("h2", {}, `What was recorded of ${run.raw.label}, and what was not`),
      make("p", { class: "sentence" }, sentence),
      ...present.map((title) => section(title, tables[title])),
    );
  }

  function section(title, rows) {
    const body = make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((cell, i) =>
      (i ? make("td", {}, cell) : make("th", { scope: "row" }, cell))))));
    const table = make("table", { class: "facts" }, body);
    const long = rows.length > 30;
    return make("details", { open: !long }, make("summary", {}, long ? `${title} (${rows.length})` : title), table);
  }

  return { show };
})();
