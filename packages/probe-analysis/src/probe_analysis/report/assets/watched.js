"use strict";
/* Show what task watch has left: norms of every step as curves, and what was not finite. */

const Watched = (() => {
  const MOST_LINES = 8;
  const ALL = 2000;

  function show(root, data) {
    Charts.clear();
    root.replaceChildren();
    for (const { dump, quantities, bad, more, skipped } of data.watched) {
      if (data.watched.length > 1) root.append(make("h2", {}, data.dumps[dump]));
      if (skipped) root.append(make("p", {}, `A loss scaler skipped ${Numbers.count(skipped, "update")}.`));
      if (bad.length) root.append(notFinite(bad, more));
      quantities.forEach((each) => quantity(root, each));
    }
  }

  function notFinite(bad, more) {
    const title = `Not finite (${Numbers.count(bad.length + more, "number")}${more ? `; the first ${bad.length} are here` : ""})`;
    const rows = bad.map(([step, rank, kind, name, nan, inf]) => [step, rank ?? "–", kind, name, nan, inf]);
    return make("details", { open: bad.length <= 30 }, make("summary", {}, title),
      table(["step", "rank", "of", "tensor", "NaN", "infinite"], rows));
  }

  function quantity(root, { quantity, sentence, notes, steps, ranks, totals, names, change, values }) {
    const box = make("section", { class: "chart", "data-quantity": quantity }, make("h2", {}, quantity[0].toUpperCase() + quantity.slice(1)),
      make("p", { class: "quiet" }, [sentence, ...notes].join(" ")));
    root.append(box);
    const drawn = ranks.slice(0, Charts.MOST_RANKS);
    const labels = drawn.map((rank) => (rank === null ? "all together" : `rank ${rank}`));
    Charts.curves(box, "The norm of all together", steps, labels, totals.slice(0, drawn.length));
    const several = ranks.length > 1 ? ", the largest of all ranks" : "";
    Charts.curves(box, `The norms that changed most${several}`, steps, names.slice(0, MOST_LINES), values.slice(0, MOST_LINES));
    const rows = names.slice(0, ALL).map((name, i) => {
      const there = [...values[i]].filter((value) => !Number.isNaN(value));
      return [name, Numbers.text(change[i], 4), ...[there[0], there.at(-1), Math.max(...there)].map((x) => Numbers.text(x, 5))];
    });
    box.append(make("details", {}, make("summary", {}, `All ${Numbers.count(names.length, "tensor")}`),
      table(["tensor", "changed, times", "first", "last", "largest"], rows)));
  }

  function table(head, rows) {
    const line = (cells, tag) => make("tr", {}, ...cells.map((cell) => make(tag, {}, String(cell))));
    return make("table", { class: "facts" }, make("thead", {}, line(head, "th")), make("tbody", {}, ...rows.map((row) => line(row, "td"))));
  }

  return { show };
})();
