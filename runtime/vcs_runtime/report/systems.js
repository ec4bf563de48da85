"use strict";
// Systems side by side: means, tests and distributions, one against another, every video.

const VIDEO_PAGE = 25;
const PRINTED = 1000; // rows of a table on paper
const DIFFERENT = 12; // videos that are listed beside the dots
const MOST_DOTS = 3000; // of more, a dot is no link of its own

// The one choice of a score, which all views follow; it stays in sight.
function scoreChoice(index) {
  const views = [];
  const choice = { score: index.headline[0], paper: false, follow: (view) => { views.push(view); view(); },
    draw: (paper) => { choice.paper = paper; for (const view of views) view(); } };
  const select = make("select", { id: "score", onchange: () => { choice.score = scoreOf(index, select.value); choice.draw(false); } }, ...index.headline.map((score) => make("option", { value: score.name }, score.label)));
  choice.box = make("p", { class: "controls choice" }, make("label", {}, "Score ", select), make("span", { class: "soft" }, "of the charts and tables below"));
  return choice;
}

// The best of some values: the largest, or the smallest where the score says so.
const bestOf = (score, values) => (score.smaller ? Math.min(...values) : Math.max(...values));
const enumerated = (words) => [words.slice(0, -1).join(", "), ...words.slice(-1)].filter((text) => text).join(" and ");

const nameOf = (index, system) => make("bdi", {}, index.systems[system].name);
const scoredSystems = (index) => index.systems.filter((system) => system.scored);

function meansTable(index) {
  const several = scoredSystems(index).length > 1;
  const best = Object.fromEntries(index.headline.map((score) => [score.name, bestOf(score, scoredSystems(index).map((s) => s.statistics[score.name].mean))]));
  const inMeans = (k) => (k < 4 ? null : "not-phone"); // a phone has room for four
  const counts = [["pairs", "Number of pairs that have scores"], ["failed", "Number of pairs that could not be scored"], ["VCS 0", "Number of pairs whose VCS is 0"]];
  const row = (title, value, numbers, kind) => make("tr", { class: kind }, make("th", { scope: "row" }, ...title), ...index.ordered.map(({ name }, k) => make("td", { class: inMeans(k) }, value(name))), ...numbers.map((count) => make("td", { class: "not-phone" }, String(count))));
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
  const head = make("tr", {}, make("th", { scope: "col" }, "system"), ...index.ordered.map((score, k) => make("th", { scope: "col", class: inMeans(k) }, term(score))),
    ...counts.map(([label, title]) => make("th", { scope: "col", class: "not-phone" }, make("abbr", { title }, label))));
  return make("div", {}, scroller("Means", make("table", { id: "systems" }, make("thead", {}, head), make("tbody", {}, ...rows))), wider(),
    make("p", { class: "soft" }, `Means over the pairs that each system has scored.${several ? boldMeans(index.headline) : ""}${index.systems.some((s) => s.judged.vcs !== undefined) ? " Judged pairs: without those whose order could not be judged." : ""}`));
}

function boldMeans(scores) {
  const labels = (smaller) => enumerated(scores.filter((score) => score.smaller === smaller).map(({ label }) => label));
  return ` Bold: the highest mean of ${labels(false)}${labels(true) && `, the lowest of ${labels(true)}`}.`;
}

// The table of `vcs-runtime compare`, the best first: means, distributions on one axis, paired tests against the baseline.
function systemsTable(index, choice) {
  const place = make("div");
  choice.follow(() => place.replaceChildren(...compared(index, choice.score, choice.paper)));
  return place;
}

function compared(index, score, paper) {
  const found = index.comparisons.find((each) => each.scores[0] === score.name);
  const of = (system, name) => {
    const own = index.comparisons.find((each) => each.scores[0] === name)?.systems.find((s) => s.name === system.name)?.scores[name];
    return own ? { mean: own.mean, low: own.ci95[0], high: own.ci95[1] } : system.statistics[name];
  };
  const systems = scoredSystems(index).sort((a, b) => (score.smaller ? 1 : -1) * (of(a, score.name).mean - of(b, score.name).mean));
  const draws = strips(index, score, paper ? 208 : 352);
  const tested = (system) => {
    const test = found.comparisons.find((each) => each.system === system.name);
    if (!test) return ["baseline", ""];
    const p = largest(test);
    return [signedNumber(test.difference) + "*".repeat([0.05, 0.01].filter((level) => p !== null && p < level).length), p === null ? "\u2013" : number(p, 4)];
  };
  const others = index.headline.filter((each) => each !== score);
  const row = (system) => {
    const own = of(system, score.name);
    return make("tr", {}, make("th", { scope: "row" }, make("bdi", {}, system.name)), make("td", {}, make("strong", {}, number(own.mean)), make("span", { class: "soft not-phone" }, own.high === null ? "" : ` \u00b1${number((own.high - own.low) / 2)}`)),
      make("td", { class: "strip not-phone" }, draws.row(system, own, 34)), ...(found ? tested(system).map((text) => make("td", {}, text)) : []),
      make("td", {}, `${system.zeros} of ${system.scored}`), ...others.map(({ name }) => make("td", { class: "not-phone" }, number(of(system, name).mean))));
  };
  const heads = [["system"], [term(score)], ["pairs, mean and 95 % interval", "not-phone"], ...(found ? [[make("span", {}, "difference from ", make("bdi", {}, found.baseline))], ["p"]] : []), ["VCS is 0"], ...others.map((each) => [term(each), "not-phone"])];
  const foot = make("tr", { class: "not-phone" }, make("td"), make("td"), make("td", { class: "strip" }, draws.axis()), make("td", { colspan: heads.length - 3 }));
  const table = make("table", { id: "comparison" }, make("thead", {}, make("tr", {}, ...heads.map(([head, kind = null]) => make("th", { scope: "col", class: kind }, head)))), make("tbody", {}, ...systems.map(row)), make("tfoot", {}, foot));
  return [scroller("Systems compared", table), wider(), make("p", { class: "soft" }, make("span", { class: "not-phone" }, draws.about(systems.map((system) => [system.name, of(system, score.name).mean]))), found ? notes(found, score) : index.incomparable && `No paired tests: ${index.incomparable}.`)];
}

// The pairs of each system as bars, with mean and interval, on an axis that all rows share: what pairs, 0 and reference points cover.
function strips(index, score, width) {
  const size = (score.high - score.low) / scoredSystems(index)[0].histograms[score.name].length;
  const bins = (system) => system.histograms[score.name].flatMap((count, k) => (count ? [[score.low + k * size, count]] : []));
  const every = scoredSystems(index).flatMap(bins);
  const points = index.points.filter(({ scores }) => score.name in scores).map(({ name, scores }) => [scores[score.name], name]).sort(([a], [b]) => a - b);
  const most = Math.max(...every.map(([, count]) => count));
  const covered = [0, ...points.map(([at]) => at), ...every.flatMap(([at]) => [at, at + size])];
  const [start, end] = [Math.min(...covered), Math.max(...covered)];
  const x = (value) => (16 + ((value - start) / (end - start)) * (width - 32)).toFixed(1);
  const lines = (height) => [draw("path", { class: "zero", d: `M${x(0)} 0V${height}` }), draw("path", { class: "ideal", d: points.map(([at]) => `M${x(at)} 0V${height}`).join("") })];
  const svg = (height, label, ...nodes) => draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, ...nodes);
  return {
    row: (system, { mean, low, high }, height) => svg(height, `${score.label} of ${system.name}: mean ${number(mean)}, from ${number(low)} to ${number(high)}`,
      draw("path", { class: "pairs", d: bins(system).map(([at, count]) => `M${x(at)} ${height}V${(height - (height - 4) * count / most).toFixed(1)}H${x(at + size)}V${height}z`).join("") }),
      ...lines(height), draw("path", { class: "whisker", d: `M${x(low)} ${height / 2 - 5}v10M${x(low)} ${height / 2}H${x(high)}m0 -5v10` }), draw("circle", { class: "fill", cx: x(mean), cy: height / 2, r: 4.5 })),
    axis: () => svg(22 + 15 * points.length, `axis of the ${score.label}`, draw("path", { class: "axis", fill: "none", d: `M16 1H${width - 16}${ticks(start, end).map(([at]) => `M${x(at)} 1v5`).join("")}` }),
      ...ticks(start, end).map(([at, label]) => draw("text", { x: x(at), y: 18, "text-anchor": "middle" }, label)),
      ...points.map(([at, name], k) => draw("text", { x: x(at), y: 33 + 15 * k, "text-anchor": x(at) < width / 2 ? "start" : "end" }, name))),
    about: (means) => `Bars show the pairs; the point, the line and \u00b1 show the mean and its 95 % interval. ${points.length ? `Dashed lines are reference points: ${enumerated(points.map(([at, name]) => `${name} (${number(at)})`))}. ` : ""}`
      + points.flatMap(([at, name], k) => [["below", k === 0, -1], ["above", k === points.length - 1, 1]].map(([word, last, sign]) => {
        const names = means.filter(([, mean]) => last && sign * (mean - at) > 0).map(([own]) => own);
        return names.length ? `${enumerated(names)} ${names.length > 1 ? "have" : "has"} a mean ${word} ${name}. ` : "";
      })).join(""),
  };
}

const signedNumber = (value) => (value < 0 ? "" : "+") + number(value);

// The p-value that decides: the larger one of both tests; null for too few pairs.
const largest = ({ p_bootstrap_corrected: first, p_permutation_corrected: second }) => (first === null || second === null ? null : Math.max(first, second));

function notes(found, score) {
  const sense = score.smaller ? " Smaller is better." : "";
  const left = found.left_out ? `; ${found.left_out} more ${found.left_out === 1 ? "is" : "are"} left out` : "";
  const corrected = found.correction === "holm" && found.tests > 1 ? `, corrected by Holm's method over the ${found.tests} tests of ${found.family === "all" ? "all scores" : "this score"}` : "";
  const fewest = Math.min(1, 2 / 2 ** found.pairs * (found.correction === "holm" ? found.tests : 1));
  const few = fewest < 0.05 ? "" : ` With so few pairs no p can be below ${fewest.toPrecision(2)}, so no difference is significant.`;
  return `Means over the ${found.pairs} ${found.pairs === 1 ? "pair" : "pairs"} that all systems scored${left}. `
    + `p is the larger p-value of a paired bootstrap and a permutation test, ${found.resamples} resamples each${corrected}; * p < 0.05, ** p < 0.01. ${found.family === "all" ? "" : `"vcs-runtime compare --score ${score.name}" prints the same.`}${sense}${few}`;
}

// Of one system, its pairs on an axis.
function distribution(index, choice) {
  const figure = make("figure", { class: "distribution" });
  choice.follow(() => {
    const [[system], { score, paper }] = [scoredSystems(index), choice];
    const draws = strips(index, score, Math.min(paper ? 640 : 1400, document.querySelector("main").clientWidth));
    const own = system.statistics[score.name];
    figure.replaceChildren(draws.row(system, own, 110), draws.axis(), make("figcaption", {}, `${score.label} of ${system.scored} pairs: mean ${number(own.mean)}${own.high === null ? "" : `, 95 % ${number(own.low)} to ${number(own.high)}`}, standard deviation ${number(own.sd)}. `, draws.about([[system.name, own.mean]])));
  });
  return make("div", {}, choice.box, figure);
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
  // At first the two best systems.
  const mean = (k) => index.systems[k].statistics[choice.score.name]?.mean ?? -Infinity;
  const best = names.map((_, k) => k).sort((a, b) => (choice.score.smaller ? mean(a) - mean(b) : mean(b) - mean(a)));
  const [across, up] = [pick("across", "Across", best[0]), pick("up", "Up", best[1])];
  const figure = make("div", { class: "figures" });
  const show = () => figure.replaceChildren(...dotPlot(index, [...videos], across.system, up.system, choice.score));
  choice.follow(show);
  return make("div", {}, make("p", { class: "controls" }, across.label, up.label), figure);
}

function dotPlot(index, videos, a, b, score) {
  const value = (row) => row.scores[score.name];
  const points = videos.filter(([, own]) => own[a] && own[b]).map(([id, own]) => ({ id, x: value(own[a]), y: value(own[b]), pages: [own[a], own[b]].filter((row) => row.page !== null) }));
  if (!points.length) return [make("p", {}, "No video was scored by both systems.")];
  const [least, most] = points.reduce(([low, high], { x, y }) => [Math.min(low, x, y), Math.max(high, x, y)], [Infinity, -Infinity]);
  const pad = Math.max(0.02, (most - least) * 0.1);
  const [low, high] = [least - pad, most + pad]; // of both axes, so that the diagonal means equal
  const [nameA, nameB] = [a, b].map((system) => index.systems[system].name);
  const width = Math.min(600, document.querySelector("main").clientWidth); // so that its labels keep their size
  const c = chart(`${score.label} of ${nameA}, across, and of ${nameB}, up`, high, high, { width, height: 440, start: low, base: low, xlabel: `${score.label} of ${nameA}`, ylabel: `${score.label} of ${nameB}` });
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
    const scale = width / box.width;
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
  return [make("figure", { class: "scatter" }, c.svg, readout, make("figcaption", {}, `${nameB} is higher for ${higher} of ${points.length} ${points.length === 1 ? "video" : "videos"}, ${nameA} for ${lower}; ${points.length - higher - lower} equal.${linked}`)), differ.length ? scroller("Videos that differ most", table) : ""];
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
  const keys = [([id]) => id, ...index.systems.map((_, k) => ([, own]) => (own[k] ? own[k].scores[choice.score.name] : Infinity)), ([, own]) => spread(own)];
  const sorter = sortable([["video"], ...index.systems.map(({ name }) => [name]), ["spread", "Largest difference between two systems; the largest first"]], keys.length - 1, (by, down) => {
    order = sorted(videos, keys[by], down);
    page.turn(0);
  }, keys.length - 1);
  const bold = make("p", { class: "soft" });
  choice.follow(() => {
    bold.textContent = `Bold: the ${choice.score.smaller ? "lowest" : "highest"} score of a video. A dash: not scored. Spread: the largest difference between two systems.`;
    sorter.again();
  });
  const paper = make("p", { class: "paper soft" });
  const box = make("div", {}, page.box, paper,
    scroller("Videos by system", make("table", { id: "videos" }, make("thead", {}, make("tr", {}, ...sorter.heads)), body)),
    bold);
  return { box, ...printing(page, paper, () => order.length, () => `Score: ${choice.score.label}`) };
}

// Heads of columns that sort: [label, title] each. `arrange(by, down)` is called with the column and the direction.
// A column that `falling` names begins with its largest value.
function sortable(columns, by, arrange, falling = -1) {
  let down = by === falling;
  const heads = columns.map(([label, title = null, kind = null], k) => make("th", { scope: "col", class: kind }, make("button", { type: "button", title, onclick: () => turn(k) }, ...label.split(" ").flatMap((word, at) => [at ? " " : "", make("span", { class: "word" }, word)]))));
  function turn(k) {
    down = k === by ? !down : k === falling;
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
