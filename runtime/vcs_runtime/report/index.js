"use strict";
// Many pairs: systems side by side, distributions, a table that sorts; and which view the address asks for.

const TABLE_PAGE = 50;

function showIndex(index, place) {
  place.append(make("h1", {}, index.title), systems(index));
  place.append(make("h2", {}, "How VCS is distributed"), make("div", { class: "figures" }, ...index.systems.filter((s) => s.scored).map((s) => histogram(s, index))));
  place.append(make("h2", {}, "Pairs"), pairs(index));
  if (index.failed.length) {
    place.append(make("h2", {}, "Not scored"), make("ul", {}, ...index.failed.map(([name, why]) => make("li", {}, make("bdi", {}, name), `: ${why}`))));
  }
  place.append(make("h2", {}, "Signature"), ...index.signatures.map((line) => make("p", {}, make("code", {}, line))));
}

function systems(index) {
  const names = ["vcs", "gas", "las", "sas", "nas", "nas_d", "nas_l", "window_regularizer"];
  const head = make("tr", {}, make("th", {}, "system"), make("th", {}, "scored"), make("th", {}, "failed"), make("th", {}, "VCS, 95 % interval"),
    ...names.map((name) => make("th", {}, index.labels[name])));
  const whole = index.systems.filter((s) => s.scored).map((s) => s.statistics.vcs);
  const low = Math.min(1, ...whole.map((s) => s.low));
  const high = Math.max(0, ...whole.map((s) => s.high));
  const pad = Math.max(0.01, (high - low) * 0.1);
  const rows = index.systems.map((system) => {
    const found = system.statistics;
    const cells = names.map((name) => make("td", {}, system.scored ? number(found[name].mean) : "\u2013"));
    const x = (value) => 4 + ((value - low + pad) / (high - low + 2 * pad)) * 132;
    const plot = system.scored ? draw("svg", { viewBox: "0 0 140 14", width: 140, role: "img", "aria-label": `${number(found.vcs.low)} to ${number(found.vcs.high)}` },
      draw("path", { class: "whisker", d: `M${x(found.vcs.low)} 7H${x(found.vcs.high)}` }), draw("circle", { class: "fill", cx: x(found.vcs.mean), cy: 7, r: 4 })) : "";
    const range = system.scored ? make("span", { class: "soft" }, `${number(found.vcs.low)} \u2013 ${number(found.vcs.high)}`) : "";
    return make("tr", {}, make("td", {}, make("bdi", {}, system.name)), make("td", {}, String(system.scored)), make("td", {}, String(system.failed)), make("td", {}, plot, range), ...cells);
  });
  return make("div", { class: "scroll" }, make("table", { id: "systems" }, make("thead", {}, head), make("tbody", {}, ...rows)));
}

function histogram(system, index) {
  const most = Math.max(5, ...index.systems.flatMap((s) => s.histogram)); // below 5 ticks would be fractions of pairs
  const c = chart(`Distribution of VCS, ${system.name}`, 1, most, { height: 200, xlabel: "VCS", ylabel: "pairs" });
  const width = 1 / system.histogram.length;
  c.svg.append(draw("path", { class: "fill", d: system.histogram.map((count, k) =>
    `M${c.x(k * width + width * 0.06)} ${c.bottom}V${c.y(count)}H${c.x((k + 1) * width - width * 0.06)}V${c.bottom}z`).join("") }));
  return make("figure", {}, c.svg, make("figcaption", {}, make("bdi", {}, system.name), `: ${system.scored} ${system.scored === 1 ? "pair" : "pairs"}, mean ${number(system.statistics.vcs.mean)}, standard deviation ${number(system.statistics.vcs.sd)}`));
}

function pairs(index) {
  const several = index.systems.length > 1;
  const columns = [["pair", 0], ...(several ? [["system", 1]] : []), ...index.scores.map((name, k) => [index.labels[name], k + 3])];
  let rows = index.rows;
  let [by, down] = [3, false];
  const body = make("tbody");
  const page = pager(rows.length, TABLE_PAGE, (first, last) => body.replaceChildren(...rows.slice(first, last).map((row) => {
    const name = make("bdi", {}, row[0]);
    const link = row[2] === null ? name : make("a", { href: `#pair-${row[2]}` }, name);
    return make("tr", {}, make("td", {}, link), several ? make("td", {}, make("bdi", {}, index.systems[row[1]].name)) : null,
      ...row.slice(3).map((value) => make("td", {}, number(value))));
  })));
  const heads = columns.map(([label, key]) => {
    const head = make("th", { scope: "col" }, make("button", { type: "button", onclick: () => sort(key) }, label));
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
    rows.sort((a, b) => sign * (typeof a[by] === "string" ? a[by].localeCompare(b[by], undefined, { numeric: true }) : a[by] - b[by]));
    for (const head of heads) {
      if (Number(head.dataset.key) === by) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
    page.resize(rows.length);
  }
  const filter = make("input", { type: "search", "aria-label": "only pairs whose name holds", oninput: () => arrange() });
  arrange();
  return make("div", {}, make("p", { class: "controls" }, make("label", {}, "name holds ", filter), index.left_out), page.box,
    make("div", { class: "scroll" }, make("table", { id: "pairs" }, make("thead", {}, make("tr", {}, ...heads)), body)));
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
    if (wanted === null) showIndex(index, place);
    main.replaceChildren(place);
    if (wanted !== null) {
      if (!index.single) {
        const order = index.order.indexOf(wanted);
        const link = (at, text) => (index.order[at] === undefined ? null : make("a", { href: `#pair-${index.order[at]}` }, text));
        place.append(make("nav", { "aria-label": "pairs" }, make("a", { href: "#" }, "all pairs"), link(order - 1, "worse"), link(order + 1, "better")));
      }
      const pair = await block(`block-${wanted}`);
      shown = showPair({ ...pair, labels: index.labels, meanings: index.meanings }, place);
    }
    if (!index.single) scrollTo(0, 0);
    document.body.dataset.ready = location.hash || "#";
  }
  addEventListener("hashchange", route);
  addEventListener("beforeprint", () => shown?.print());
  addEventListener("afterprint", () => shown?.restore());
  await route();
})();
