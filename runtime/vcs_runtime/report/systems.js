"use strict";
// Systems side by side: means, intervals and tests, distributions, one against another, every video.

const VIDEO_PAGE = 25;
const PRINTED = 1000; // rows of a table on paper
const DIFFERENT = 12; // videos that are listed beside the dots
const MOST_DOTS = 3000; // of more, a dot is no link of its own

// One choice of a score for all views: each select follows the others.
function scoreChoice(index) {
  const first = scoreOf(index, index.mostly_zero ? index.ranking[0] : "vcs"); // a VCS that is 0 for most pairs compares nothing
  const [selects, views] = [[], []];
  const choice = {
    score: first,
    follow: (view) => { views.push(view); view(); },
    select: (id) => {
      const select = make("select", { id, onchange: () => choose(select.value) }, ...index.headline.map((score) => make("option", { value: score.name, selected: score === choice.score }, score.label)));
      selects.push(select);
      return make("label", {}, "Score ", select);
    },
  };
  function choose(name) {
    choice.score = scoreOf(index, name);
    for (const select of selects) select.value = name;
    for (const view of views) view();
  }
  return choice;
}

// The best of some values: the largest, or the smallest where the score says so.
const bestOf = (score, values) => (score.smaller ? Math.min(...values) : Math.max(...values));
const enumerated = (words) => [words.slice(0, -1).join(", "), ...words.slice(-1)].filter((text) => text).join(" and ");

const nameOf = (index, system) => make("bdi", {}, index.systems[system].name);
const scoredSystems = (index) => index.systems.filter((system) => system.scored);

// Above the first view that follows the choice.
function zeroNote(index, choice) {
  const note = make("p", { class: "soft" }, `VCS is 0 for most pairs, so the ${choice.score.label} is shown first.`);
  const first = choice.score;
  choice.follow(() => { note.hidden = !index.mostly_zero || choice.score !== first; });
  return note;
}

function meansTable(index) {
  const several = scoredSystems(index).length > 1;
  const best = Object.fromEntries(index.headline.map((score) => [score.name, bestOf(score, scoredSystems(index).map((s) => s.statistics[score.name].mean))]));
  const counts = [["pairs", "Number of pairs that have scores"], ["failed", "Number of pairs that could not be scored"], ["VCS 0", "Number of pairs whose VCS is 0"]];
  const row = (title, value, numbers, kind) => make("tr", { class: kind }, make("th", { scope: "row" }, ...title), ...index.ordered.map(({ name }) => make("td", {}, value(name))), ...numbers.map((count) => make("td", {}, String(count))));
  const rows = index.systems.flatMap((system) => {
    const mean = (name) => {
      if (!system.scored) return "\u2013";
      const value = system.statistics[name].mean;
      return several && value === best[name] ? make("strong", {}, number(value)) : number(value);
    };
    const own = row([make("bdi", {}, system.name)], mean, [system.scored, system.failed, system.zeros]);
    if (system.judged.vcs === undefined) return [own];
    return [own, row([make("bdi", {}, system.name), ", judged pairs"], (name) => number(system.judged[name]), [system.scored - system.not_judged, "", ""], "soft")];
  });
  const head = make("tr", {}, make("th", { scope: "col" }, "system"), ...index.ordered.map((score) => make("th", { scope: "col" }, term(score))),
    ...counts.map(([label, title]) => make("th", { scope: "col" }, make("abbr", { title }, label))));
  return make("div", {}, scroller("Means", make("table", { id: "systems" }, make("thead", {}, head), make("tbody", {}, ...rows))),
    make("p", { class: "soft" }, `Means over the pairs that each system has scored.${several ? boldMeans(index.headline) : ""}${index.systems.some((s) => s.judged.vcs !== undefined) ? " Judged pairs: without those whose order could not be judged." : ""}`));
}

function boldMeans(scores) {
  const labels = (smaller) => enumerated(scores.filter((score) => score.smaller === smaller).map(({ label }) => label));
  return ` Bold: the highest mean of ${labels(false)}${labels(true) && `, the lowest of ${labels(true)}`}.`;
}

// The table of `vcs-runtime compare`: intervals on one axis, and paired tests against the baseline.
function comparison(index, choice) {
  const place = make("div");
  choice.follow(() => place.replaceChildren(...compared(index, choice.score)));
  return make("div", {}, make("p", { class: "controls" }, choice.select("compared")), zeroNote(index, choice), place);
}

function compared(index, score) {
  const found = index.comparisons.find((each) => each.scores[0] === score.name);
  const own = scoredSystems(index).map((s) => ({ name: s.name, ...s.statistics[score.name] }));
  const systems = found ? found.systems.map((s) => ({ name: s.name, mean: s.scores[score.name].mean, low: s.scores[score.name].ci95[0], high: s.scores[score.name].ci95[1] })) : own;
  const low = Math.min(...systems.map((s) => s.low));
  const high = Math.max(...systems.map((s) => s.high));
  const pad = Math.max(0.01, (high - low) * 0.08);
  const [start, end, width] = [low - pad, high + pad, 220];
  const x = (value) => (14 + ((value - start) / (end - start)) * (width - 28)).toFixed(1);
  const dots = (s) => draw("svg", { viewBox: `0 0 ${width} 18`, role: "img", "aria-label": `${number(s.mean)}, from ${number(s.low)} to ${number(s.high)}` },
    draw("path", { class: "whisker", d: `M${x(s.low)} 4V14M${x(s.low)} 9H${x(s.high)}M${x(s.high)} 4V14` }), draw("circle", { class: "fill", cx: x(s.mean), cy: 9, r: 4.5 }));
  const marks = ticks(start, end);
  const axis = draw("svg", { viewBox: `0 0 ${width} 24`, role: "img", "aria-label": `axis of the ${score.label}` },
    draw("path", { class: "axis", fill: "none", d: `M14 1H${width - 14}${marks.map(([at]) => `M${x(at)} 1v5`).join("")}` }),
    ...marks.map(([at, label]) => draw("text", { x: x(at), y: 19, "text-anchor": "middle" }, label)));
  const heads = ["system", "mean", "95 % interval", "mean and interval"];
  if (found) heads.push(make("span", {}, "difference to ", make("bdi", {}, found.baseline)), "95 % interval", "p bootstrap", "p permutation", "in words");
  const p = (value) => (value === null ? "\u2013" : number(value, 4));
  const tested = (s) => {
    const test = found.comparisons.find((each) => each.system === s.name);
    if (!test) return [make("td", {}, "baseline"), ...Array.from({ length: 4 }, () => make("td"))];
    const [below, above] = test.ci95;
    return [signedNumber(test.difference), below === null ? "\u2013" : `${signedNumber(below)} to ${signedNumber(above)}`, p(test.p_bootstrap_corrected), p(test.p_permutation_corrected), inWords(test)].map((text) => make("td", {}, text));
  };
  const rows = systems.map((s) => make("tr", {}, make("th", { scope: "row" }, make("bdi", {}, s.name)), make("td", {}, number(s.mean)), make("td", {}, `${number(s.low)} to ${number(s.high)}`),
    make("td", { class: "dots" }, dots(s)), ...(found ? tested(s) : [])));
  const foot = make("tr", {}, make("td", { colspan: 3 }), make("td", { class: "dots" }, axis), found ? make("td", { colspan: 5 }) : null);
  const table = make("table", { id: "comparison" }, make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head)))), make("tbody", {}, ...rows), make("tfoot", {}, foot));
  return [scroller("Systems compared", table), make("p", { class: "soft" }, found ? notes(index, found, score) : index.incomparable && `No paired tests: ${index.incomparable}.`)];
}

const signedNumber = (value) => (value < 0 ? "" : "+") + number(value);

function inWords({ difference, p_bootstrap_corrected: first, p_permutation_corrected: second }) {
  if (first === null) return "too few pairs";
  const level = [0.01, 0.05].find((each) => Math.max(first, second) < each);
  return level ? `${difference > 0 ? "higher" : "lower"} (p < ${level})` : "no clear difference";
}

function notes(index, found, score) {
  const sense = score.smaller ? " The smaller, the better." : "";
  const left = found.left_out ? `; ${found.left_out} more ${found.left_out === 1 ? "is" : "are"} left out` : "";
  const corrected = found.correction === "holm" && found.tests > 1 ? `, corrected by Holm's method over ${found.tests} tests` : "";
  const fewest = Math.min(1, 2 / 2 ** found.pairs * (found.correction === "holm" ? found.tests : 1));
  const few = fewest < 0.05 ? "" : ` So few pairs cannot show a permutation p below ${fewest.toPrecision(2)}: whatever the systems are, no difference is clear.`;
  return `${score.label[0].toUpperCase()}${score.label.slice(1)} over the ${found.pairs} ${found.pairs === 1 ? "pair" : "pairs"} that all systems have scored${left}. Intervals are from a bootstrap. `
    + `p: of a paired bootstrap and of a permutation test with ${found.resamples} resamples${corrected}; a difference counts if p < 0.05 in both. The same numbers come from "vcs-runtime compare --score ${score.name}".${sense}${few}`;
}

function distributions(index, choice) {
  const figures = make("div", { class: "figures histograms" });
  choice.follow(() => figures.replaceChildren(...scoredSystems(index).map((system) => histogram(system, choice.score, scoredSystems(index)))));
  return make("div", {}, make("p", { class: "controls" }, choice.select("distribution")), index.systems.length > 1 ? null : zeroNote(index, choice), figures);
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

// The rows of each video, by the position of their system.
function byVideo(rows) {
  const videos = new Map();
  for (const row of rows) {
    if (!videos.has(row.id)) videos.set(row.id, []);
    videos.get(row.id)[row.system] = row;
  }
  return videos;
}

function scatter(index, rows, choice) {
  const videos = byVideo(rows);
  const names = index.systems.map((system) => system.name);
  const pick = (id, label, at) => {
    const select = make("select", { id, onchange: () => show() }, ...names.map((name, k) => make("option", { value: String(k), selected: k === at }, name)));
    return { label: make("label", {}, `${label} `, select), get system() { return Number(select.value); } };
  };
  const [across, up] = [pick("across", "Across", 0), pick("up", "Up", 1)];
  const figure = make("div", { class: "figures" });
  const show = () => figure.replaceChildren(...dotPlot(index, [...videos], across.system, up.system, choice.score));
  choice.follow(show);
  return make("div", {}, make("p", { class: "controls" }, choice.select("scattered"), across.label, up.label), figure);
}

function dotPlot(index, videos, a, b, score) {
  const value = (row) => row.scores[score.name];
  const points = videos.filter(([, own]) => own[a] && own[b]).map(([id, own]) => ({ id, x: value(own[a]), y: value(own[b]), pages: [own[a], own[b]].filter((row) => row.page !== null) }));
  if (!points.length) return [make("p", {}, "No video was scored by both systems.")];
  const [least, most] = points.reduce(([low, high], { x, y }) => [Math.min(low, x, y), Math.max(high, x, y)], [Infinity, -Infinity]);
  const pad = Math.max(0.02, (most - least) * 0.1);
  const [low, high] = [least - pad, most + pad]; // of both axes, so that the diagonal means equal
  const [nameA, nameB] = [a, b].map((system) => index.systems[system].name);
  const c = chart(`${score.label} of ${nameA}, across, and of ${nameB}, up`, high, high, { width: 560, height: 440, start: low, base: low, xlabel: `${score.label} of ${nameA}`, ylabel: `${score.label} of ${nameB}` });
  c.svg.setAttribute("role", "group"); // it holds links
  const spot = draw("circle", { class: "spot", r: 9, visibility: "hidden" });
  c.svg.append(draw("path", { class: "ideal", d: `M${c.x(low)} ${c.y(low)}L${c.x(high)} ${c.y(high)}` }),
    draw("text", { x: c.left + 8, y: c.top + 12 }, `${nameB} higher`), draw("text", { x: c.right - 4, y: c.bottom - 8, "text-anchor": "end" }, `${nameA} higher`), spot);
  const about = ({ id, x, y }) => `${id}: ${nameA} ${number(x)}, ${nameB} ${number(y)}`;
  if (points.length <= MOST_DOTS) {
    for (const point of points) {
      const dot = draw("circle", { class: point.pages.length ? "video linked" : "video", cx: c.x(point.x).toFixed(1), cy: c.y(point.y).toFixed(1), r: 4.5 }, draw("title", {}, about(point)));
      c.svg.append(point.pages.length ? draw("a", { href: `#pair-${point.pages[0].page}`, "aria-label": about(point), tabindex: "-1" }, dot) : dot);
    }
  } else {
    c.svg.append(draw("path", { class: "videos", d: points.map((point) => `M${c.x(point.x).toFixed(1)} ${c.y(point.y).toFixed(1)}h0`).join("") }));
  }
  const readout = make("p", { class: "readout controls", "aria-live": "polite" }, ...byDevice("Point at a dot to see its video.", "Tap near a dot to see its video."));
  const near = (event) => {
    const box = c.svg.getBoundingClientRect();
    const scale = 560 / box.width;
    const [px, py] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    const far = (point) => Math.hypot(c.x(point.x) - px, c.y(point.y) - py);
    const point = points.reduce((best, each) => (far(each) < far(best) ? each : best));
    spot.setAttribute("cx", c.x(point.x)); spot.setAttribute("cy", c.y(point.y)); spot.setAttribute("visibility", "visible");
    readout.replaceChildren(make("bdi", {}, about(point)), ...point.pages.flatMap((row) => [" ", make("a", { href: `#pair-${row.page}` }, "page of ", nameOf(index, row.system))]));
  };
  c.svg.addEventListener("pointermove", near);
  c.svg.addEventListener("pointerdown", near);
  const higher = points.filter((point) => point.y > point.x).length;
  const lower = points.filter((point) => point.y < point.x).length;
  const linked = points.some((point) => point.pages.length) ? " A filled dot leads to a page." : "";
  const differ = [...points].sort((p, q) => Math.abs(q.y - q.x) - Math.abs(p.y - p.x)).slice(0, DIFFERENT).filter((point) => point.y !== point.x);
  const cell = (point, system, text) => {
    const page = point.pages.find((row) => row.system === system);
    return make("td", {}, page ? make("a", { href: `#pair-${page.page}` }, number(text)) : number(text));
  };
  const table = make("table", { id: "different" }, make("caption", {}, "Videos that differ most"), make("thead", {}, make("tr", {}, ...["video", nameA, nameB, "difference"].map((text) => make("th", { scope: "col" }, text)))),
    make("tbody", {}, ...differ.map((point) => make("tr", {}, make("th", { scope: "row" }, make("bdi", {}, point.id)), cell(point, a, point.x), cell(point, b, point.y), make("td", {}, signedNumber(point.y - point.x))))));
  return [make("figure", { class: "scatter" }, c.svg, readout, make("figcaption", {}, `Of ${points.length} ${points.length === 1 ? "video" : "videos"}, ${nameB} is higher for ${higher}, ${nameA} for ${lower}; ${points.length - higher - lower} equal.${linked}`)), differ.length ? scroller("Videos that differ most", table) : ""];
}

function wideTable(index, rows, choice) {
  const videos = [...byVideo(rows)];
  const spread = (own) => { const known = own.filter((row) => row).map((row) => row.scores[choice.score.name]); return Math.max(...known) - Math.min(...known); };
  const body = make("tbody");
  let order = videos;
  const line = ([id, own]) => {
    const known = own.filter((row) => row).map((row) => row.scores[choice.score.name]);
    const best = bestOf(choice.score, known);
    const cell = (_, k) => {
      const row = own[k];
      if (!row) return make("td", {}, "\u2013");
      const value = row.scores[choice.score.name];
      const text = value === best && known.some((each) => each !== best) ? make("strong", {}, number(value)) : number(value);
      return make("td", {}, row.page === null ? text : make("a", { href: `#pair-${row.page}` }, text));
    };
    return make("tr", {}, make("th", { scope: "row" }, make("bdi", {}, id)), ...index.systems.map(cell), make("td", {}, number(spread(own))));
  };
  const page = pager(order.length, VIDEO_PAGE, (first, last) => body.replaceChildren(...order.slice(first, last).map(line)));
  const keys = [([id]) => id, ...index.systems.map((_, k) => ([, own]) => (own[k] ? own[k].scores[choice.score.name] : Infinity)), ([, own]) => -spread(own)];
  const sorter = sortable([["video"], ...index.systems.map(({ name }) => [name]), ["spread", "Largest difference between two systems; the largest first"]], keys.length - 1, (by, down) => {
    order = sorted(videos, keys[by], down);
    page.turn(0);
  });
  const bold = make("p", { class: "soft" });
  choice.follow(() => {
    bold.textContent = `Bold: the ${choice.score.smaller ? "lowest" : "highest"} score of a video. A dash: not scored. Spread: the largest difference between two systems.`;
    sorter.again();
  });
  const paper = make("p", { class: "paper soft" });
  const box = make("div", {}, make("p", { class: "controls" }, choice.select("wide")), page.box, paper,
    scroller("Videos by system", make("table", { id: "videos" }, make("thead", {}, make("tr", {}, ...sorter.heads)), body)),
    bold);
  return { box, ...printing(page, paper, () => order.length, () => `Score: ${choice.score.label}`) };
}

// Heads of columns that sort: [label, title] each. `arrange(by, down)` is called with the column and the direction.
function sortable(columns, by, arrange) {
  let down = false;
  const heads = columns.map(([label, title = null, kind = null], k) => make("th", { scope: "col", class: kind }, make("button", { type: "button", title, onclick: () => turn(k) }, ...label.split(" ").flatMap((word, at) => [at ? " " : "", make("span", { class: "word" }, word)]))));
  function turn(k) {
    down = k === by && !down;
    by = k;
    again();
  }
  function again() {
    heads.forEach((head, k) => (k === by ? head.setAttribute("aria-sort", down ? "descending" : "ascending") : head.removeAttribute("aria-sort")));
    arrange(by, down);
  }
  return { heads, again };
}

// Sorted by a key, numbers before texts' order; what has no key (Infinity) is always last.
function sorted(rows, key, down) {
  const sign = down ? -1 : 1;
  const order = (a, b) => (a === b ? 0 : a === Infinity ? 1 : b === Infinity ? -1 : sign * (typeof a === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true })));
  return rows.map((row) => [key(row), row]).sort(([a], [b]) => order(a, b)).map(([, row]) => row);
}

// On paper: all rows, or as many as are sensible, and a line that says so.
function printing(page, paper, total, about) {
  return {
    print: () => {
      page.whole(PRINTED);
      paper.textContent = `${about()}. ${total() > PRINTED ? `The first ${PRINTED} of ${total()} rows are printed.` : ""}`;
    },
    restore: () => page.again(),
  };
}
