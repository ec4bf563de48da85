"use strict";
// Many pairs: systems side by side, distributions, a table that sorts; and which view the address asks for.

const TABLE_PAGE = 50;

function showIndex(index, place) {
  place.append(make("h1", {}, index.title), sentences(index), systems(index));
  place.append(make("h2", {}, "How scores are distributed"), distributions(index));
  place.append(make("h2", {}, "Pairs"), pairs(index));
  if (index.failed.length) {
    place.append(make("h2", {}, "Not scored"), make("ul", {}, ...index.failed.map(([name, why]) => make("li", {}, make("bdi", {}, name), `: ${why}`))));
  }
  place.append(make("h2", {}, "Signature"), ...index.signatures.map((line) => make("p", {}, make("code", {}, line))));
}

// The score by which systems are compared at first: a VCS that is 0 for most pairs compares nothing.
const leading = (index) => scoreOf(index, index.mostly_zero ? index.ranking[0] : "vcs");

function sentences(index) {
  const several = index.systems.length > 1;
  return make("ul", { class: "sentences" }, ...index.systems.flatMap((system) => system.sentences.map((text) =>
    make("li", {}, ...(several ? [make("bdi", {}, system.name), ": "] : []), text))));
}

function systems(index) {
  const { name: key, label, low: least, high: most } = leading(index);
  const head = make("tr", {}, make("th", {}, "system"), make("th", {}, "scored"), make("th", {}, "failed"), make("th", {}, `${label}, 95 % interval`),
    ...index.scores.map((score) => make("th", { title: score.meaning }, score.label)));
  const whole = index.systems.filter((s) => s.scored).map((s) => s.statistics[key]);
  const low = Math.min(most, ...whole.map((s) => s.low));
  const high = Math.max(least, ...whole.map((s) => s.high));
  const pad = Math.max(0.01, (high - low) * 0.1);
  const x = (value) => 4 + ((value - low + pad) / (high - low + 2 * pad)) * 132;
  const interval = (s) => [draw("svg", { viewBox: "0 0 140 14", width: 140, role: "img", "aria-label": `${number(s.low)} to ${number(s.high)}` },
    draw("path", { class: "whisker", d: `M${x(s.low)} 7H${x(s.high)}` }), draw("circle", { class: "fill", cx: x(s.mean), cy: 7, r: 4 })),
  make("span", { class: "soft" }, `${number(s.low)} \u2013 ${number(s.high)}`)];
  const row = (title, scored, failed, plot, value) => make("tr", {}, make("td", {}, ...title), ...[scored, failed].map((count) => make("td", {}, String(count))),
    make("td", {}, ...plot), ...index.scores.map((score) => make("td", {}, value(score.name))));
  const rows = index.systems.flatMap((system) => {
    const found = row([make("bdi", {}, system.name)], system.scored, system.failed, system.scored ? interval(system.statistics[key]) : [],
      (name) => (system.scored ? number(system.statistics[name].mean) : "\u2013"));
    if (!system.judged[key]) return [found];
    const judged = row([make("bdi", {}, system.name), ", judged pairs"], system.scored - system.not_judged, "", [], (name) => number(system.judged[name]));
    judged.className = "soft";
    return [found, judged];
  });
  return scroller("Systems", make("table", { id: "systems" }, make("thead", {}, head), make("tbody", {}, ...rows)));
}

function distributions(index) {
  const first = leading(index);
  const scored = index.systems.filter((system) => system.scored);
  const figures = make("div", { class: "figures" });
  const choice = make("select", { id: "distribution", onchange: () => show() },
    ...index.scores.filter((score) => score.headline).map((score) => make("option", { value: score.name, selected: score === first }, score.label)));
  const show = () => figures.replaceChildren(...scored.map((system) => histogram(system, scoreOf(index, choice.value), scored)));
  show();
  return make("div", {}, make("p", { class: "controls" }, make("label", {}, "score ", choice)),
    index.mostly_zero ? make("p", { class: "soft" }, `VCS is 0 for most pairs, so the ${first.label} is shown first.`) : "", figures);
}

function histogram(system, score, scored) {
  const bins = system.histograms[score.name];
  const most = Math.max(5, ...scored.flatMap((s) => s.histograms[score.name])); // below 5 ticks would be fractions of pairs
  const c = chart(`Distribution of ${score.label}, ${system.name}`, score.high, most, { height: 200, xlabel: score.label, ylabel: "pairs", start: score.low });
  const width = (score.high - score.low) / bins.length;
  c.svg.append(draw("path", { class: "fill", d: bins.map((count, k) =>
    `M${c.x(score.low + k * width + width * 0.06)} ${c.bottom}V${c.y(count)}H${c.x(score.low + (k + 1) * width - width * 0.06)}V${c.bottom}z`).join("") }));
  const { mean, sd } = system.statistics[score.name];
  return make("figure", {}, c.svg, make("figcaption", {}, make("bdi", {}, system.name), `: ${system.scored} ${system.scored === 1 ? "pair" : "pairs"}, mean ${number(mean)}, standard deviation ${number(sd)}`));
}

// The flags of a pair as short marks; their meanings stand in the legend, and at the marks themselves.
const marks = (index, flags) => flags.flatMap((flag, k) => [k ? ", " : "", make("abbr", { title: index.flags[flag].meaning }, index.flags[flag].mark)]);

function pairs(index) {
  const several = index.systems.length > 1;
  const columns = [["pair", 0], ...(several ? [["system", 1]] : []), ["flags", 3], ...index.scores.map((score, k) => [score.label, k + 4, score.meaning])];
  let rows = index.rows;
  let by = 4 + index.scores.findIndex((score) => score.name === index.ranking[0]);
  let down = false;
  const body = make("tbody");
  const page = pager(rows.length, TABLE_PAGE, (first, last) => body.replaceChildren(...rows.slice(first, last).map((row) => {
    const name = make("bdi", {}, row[0]);
    const link = row[2] === null ? name : make("a", { href: `#pair-${row[2]}` }, name);
    return make("tr", {}, make("td", {}, link), several ? make("td", {}, make("bdi", {}, index.systems[row[1]].name)) : null,
      make("td", { class: "flags" }, ...marks(index, row[3])), ...row.slice(4).map((value) => make("td", {}, number(value))));
  })));
  const heads = columns.map(([label, key, title = null]) => {
    const head = make("th", { scope: "col", class: key === 3 && "flags" }, make("button", { type: "button", title, onclick: () => sort(key) }, label));
    head.dataset.key = key;
    return head;
  });
  function sort(key) {
    down = key === by ? !down : false;
    by = key;
    arrange();
  }
  function arrange() {
    const sign = down ? -1 : 1;
    const wanted = filter.value.toLowerCase();
    rows = index.rows.filter((row) => row[0].toLowerCase().includes(wanted));
    rows.sort((a, b) => sign * (typeof a[by] === "number" ? a[by] - b[by] : String(a[by]).localeCompare(String(b[by]), undefined, { numeric: true })));
    for (const head of heads) {
      if (Number(head.dataset.key) === by) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
    page.resize(rows.length);
  }
  const present = Object.keys(index.flags).filter((flag) => index.rows.some((row) => row[3].includes(flag)));
  const legend = make("dl", { class: "soft legend" }, ...present.flatMap((flag) => [make("dt", {}, index.flags[flag].mark), make("dd", {}, index.flags[flag].meaning)]));
  const filter = make("input", { type: "search", "aria-label": "only pairs whose name holds", oninput: () => arrange() });
  arrange();
  return make("div", {}, make("p", { class: "controls" }, make("label", {}, "name holds ", filter), index.left_out), page.box, legend,
    scroller("Pairs", make("table", { id: "pairs" }, make("thead", {}, make("tr", {}, ...heads)), body)));
}

(async () => {
  const index = await block("index");
  const main = document.querySelector("main");
  let shown = null;
  async function route() {
    const asked = /^#pair-(\d+)$/.exec(location.hash);
    const wanted = index.single ? 0 : asked && Number(asked[1]) < index.pages ? Number(asked[1]) : null;
    const place = make("div");
    shown = null;
    document.title = index.title;
    if (wanted === null) showIndex(index, place);
    main.replaceChildren(place);
    if (wanted !== null) {
      if (!index.single) place.append(pairLinks(index, wanted));
      const pair = await block(`block-${wanted}`);
      shown = showPair(pair, index, place);
    }
    if (!index.single) scrollTo(0, 0);
    document.body.dataset.ready = location.hash || "#";
  }
  addEventListener("hashchange", route);
  addEventListener("beforeprint", () => shown?.print());
  addEventListener("afterprint", () => shown?.restore());
  await route();
})();
