"use strict";
// One pair: its scores, what was scored, and the chunks side by side; matrix.js draws the figures.

// As in the figures of a PDF, a verdict has a shape as well as a colour.
const SHAPES = { "in place": "disc", covered: "disc", shifted: "triangle", moved: "diamond", repeated: "square", "weakly supported": "cross", missing: "cross" };
const UNMATCHED = ["weakly supported", "missing"];
const LIST_PAGE = 100;
const SHORT_TEXT = 400; // characters: the text is shown at once
let shortcuts = true;

// Links to the other pairs. The keys n and p follow them, unless that is switched off.
function pairLinks(index, page) {
  const at = index.order.indexOf(page);
  const link = (to, rel, text) => (to in index.order ? make("a", { href: `#pair-${index.order[to]}`, rel }, text) : null);
  const keys = make("input", { type: "checkbox", checked: shortcuts, onchange: () => { shortcuts = keys.checked; } });
  return make("nav", { "aria-label": "pairs" }, make("a", { href: "#" }, "All pairs"),
    link(at - 1, "prev", "Next worse pair"), link(at + 1, "next", "Next better pair"),
    make("label", { class: "soft pointer" }, keys, " keys: n next better pair, p next worse pair"));
}

addEventListener("keydown", (event) => {
  const rel = { n: "next", p: "prev" }[event.key];
  const typing = event.target instanceof Element && event.target.closest("input:not([type=checkbox]), select, textarea");
  if (rel && shortcuts && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) document.querySelector(`nav [rel=${rel}]`)?.click();
});

function showPair(pair, index, place) {
  const { vcs: whole, ...parts } = pair.sentences;
  const sides = { generated: pair.generated, reference: pair.reference };
  const lists = {};
  const inChunks = { reference: wordsByChunk(pair.replaced, 0), generated: wordsByChunk(pair.replaced, 1) };
  const single = Object.values(sides).every((side) => side.text.length === 1);
  const name = pair.id === null ? index.title : pair.id;
  const spelt = speller(index);
  const width = Math.max(280, place.clientWidth);
  const column = width < 900 ? width : (width - 24) / 2;
  const matrix = heatMap(pair, width, column, mark);
  document.title = pair.id === null ? index.title : [pair.id, pair.system, index.title].filter((part) => part).join(" \u2013 ");
  const legend = make("dl", { class: "soft verdicts" }, ...present(index, sides.reference, sides.generated).flatMap((verdict) =>
    [make("dt", {}, icon(verdict), ` ${verdict}`), make("dd", {}, index.verdicts[verdict])]));
  const shorter = sides.reference.text.length < sides.generated.text.length ? "reference" : "generated"; // there is room below it
  place.append(...[
    make("h1", {}, make("bdi", {}, name)), head(pair), make("p", { id: "conclusion" }, pair.conclusion),
    make("dl", { class: "headline" }, ...index.scores.filter((score) => score.headline && score.name in pair.scores).map((score) =>
      make("div", {}, make("dt", {}, make("abbr", { title: score.meaning }, score.label)), make("dd", {}, number(pair.scores[score.name])),
        make("dd", { class: "soft" }, score.name === "margin" ? "SAS + NAS \u2212 1" : score.full || score.meaning)))),
    make("p", { id: "whole" }, ...spelt(whole)),
    make("p", { class: "soft controls help" }, make("span", { class: "pointer" }, `Point at a ${pair.noun} or use the arrow keys: its match is marked, and Enter goes to it.`),
      make("span", { class: "touch" }, `Tap a ${pair.noun}: its match is marked.`), " Punctuation is ignored."),
    make("div", { class: "sides" }, list("reference", "generated"), list("generated", "reference")),
    replacedTable(pair),
    costBar(pair, index),
    make("div", { class: pair.texts.count > 1 ? "" : "two" },
      make("section", {}, make("h2", {}, "What lowered the score"), make("ul", { class: "sentences" }, ...Object.values(parts).map((text) => make("li", {}, ...spelt(text))))),
      scored(pair, index)),
    make("div", { class: matrix.wide ? "" : "two" },
      make("section", {}, make("h2", {}, "Similarity, windows and matches"), matrix.box),
      make("section", {}, make("h2", {}, "The order of the narrative"),
        single ? make("p", { class: "soft" }, `Each text has one ${pair.noun}, so there is no order.`)
          : make("div", { class: matrix.wide ? "figures" : "" }, ...["generated", "reference"].map((side) => narrative(pair, side, index, column))))),
    ...(single ? [] : [make("h2", {}, "Penalties for distance"),
      make("div", { class: "figures" }, ...["generated", "reference"].map((side) => penalties(pair, side, column)))]),
    make("h2", {}, "How the scores combine"), formulas(pair, index),
    make("h2", {}, "Signature"), make("p", {}, make("code", {}, pair.signature)),
    make("p", { class: "soft" }, pair.about)].filter((node) => node !== null));

  function list(name, other) {
    const side = sides[name];
    const items = make("ol", { "aria-label": `${name} ${pair.noun}s` });
    items.addEventListener("keydown", (event) => walk(event, name, other));
    const page = pager(side.text.length, LIST_PAGE, (first, last) => {
      items.replaceChildren(...Array.from({ length: last - first }, (_, k) => chunk(name, first + k)));
      if (items.firstChild) items.firstChild.tabIndex = 0;
    });
    lists[name] = { items, page, everything: () => items.replaceChildren(...side.text.map((_, i) => chunk(name, i))) };
    page.turn(0);
    const title = name[0].toUpperCase() + name.slice(1);
    return make("section", {}, make("h2", {}, `${title}: ${side.text.length} ${pair.noun}${side.text.length > 1 ? "s" : ""}`),
      make("p", { class: "soft counts" }, ...Object.entries(side.counts).map(([verdict, count]) => make("span", {}, icon(verdict), ` ${count} ${verdict}`))), page.box, items, name === shorter ? legend : null);
  }

  function chunk(name, i) {
    const side = sides[name];
    const verdict = side.verdict[i];
    return make("li", { class: `chunk ${slug(verdict)}`, id: `${name}-${i}`, tabindex: "-1",
      onmouseenter: () => mark(name, i), onfocus: () => mark(name, i) },
      make("span", { class: "number" }, String(i + 1)), make("span", { dir: "auto" }, ...marked(side.text[i], inChunks[name].get(i) ?? [])),
      make("span", { class: "about" }, make("span", { class: "verdict" }, icon(verdict), ` ${verdict}`), `, similarity ${number(side.similarity[i])}; ${placeOf(side, i, pair.noun)}`));
  }

  function mark(name, i) {
    const other = name === "generated" ? "reference" : "generated";
    for (const node of place.querySelectorAll(".here, .partner, .back")) node.classList.remove("here", "partner", "back");
    document.getElementById(`${name}-${i}`)?.classList.add("here");
    const partner = sides[name].match[i];
    lists[other].page.reach(partner);
    sides[other].match.forEach((match, k) => { if (match === i) document.getElementById(`${other}-${k}`)?.classList.add("back"); });
    const node = document.getElementById(`${other}-${partner}`);
    node.classList.add("partner");
    const box = lists[other].items;
    // The box alone is scrolled: the page must not jump under the pointer.
    if (node.offsetTop < box.scrollTop || node.offsetTop + node.offsetHeight > box.scrollTop + box.clientHeight) {
      box.scrollTop = node.offsetTop - box.clientHeight / 3;
    }
    matrix.point(...(name === "generated" ? [partner, i] : [i, partner]));
  }

  function walk(event, name, other) {
    const here = document.activeElement;
    const i = Number(here.id.slice(name.length + 1));
    const steps = { ArrowDown: i + 1, ArrowUp: i - 1, Home: 0, End: sides[name].text.length - 1 };
    let [side, goal] = [name, steps[event.key]];
    if (event.key === "Enter") [side, goal] = [other, sides[name].match[i]];
    if (goal === undefined || goal < 0 || goal >= sides[side].text.length) return;
    event.preventDefault();
    lists[side].page.reach(goal);
    const node = document.getElementById(`${side}-${goal}`);
    for (const item of lists[side].items.children) item.tabIndex = item === node ? 0 : -1;
    node.focus();
  }

  // On paper every list is whole and every text unfolded.
  let folded = [];
  function print() {
    folded = [...place.querySelectorAll("details:not([open])")];
    for (const node of folded) node.open = true;
    for (const side of Object.values(lists)) side.everything();
  }
  function restore() {
    for (const node of folded) node.open = false;
    for (const side of Object.values(lists)) side.page.again();
  }
  return { print, restore };
}

// The replaced words of each chunk of a side (0: reference, 1: generated), in the order of its text.
function wordsByChunk(replaced, side) {
  const chunks = new Map();
  replaced.forEach(({ words, chunks: own, places, likeness, contrast }, k) => {
    if (places[side] === null) return;
    const title = `${side ? "stands for" : "became"} ${words[1 - side]}, ${contrast ? likeness : `similarity ${likeness}`}`;
    if (!chunks.has(own[side])) chunks.set(own[side], []);
    chunks.get(own[side]).push({ place: places[side], number: k + 1, title });
  });
  for (const words of chunks.values()) words.sort((a, b) => a.place[0] - b.place[0]);
  return chunks;
}

// A text with marks around words; each bears its number in the table.
function marked(text, words) {
  let at = 0;
  const parts = words.flatMap(({ place: [start, end], number, title }) => {
    const before = text.slice(at, start);
    at = end;
    return [before, make("mark", { title }, text.slice(start, end), make("sup", {}, String(number)))];
  });
  return [...parts, text.slice(at)];
}

// What became what: the surest words; null if no word was replaced.
function replacedTable({ replaced, noun }) {
  if (!replaced.length) return null;
  const row = ({ words, kind, likeness, chunks, listed }, k) => (listed ? make("tr", {}, make("th", { scope: "row" }, String(k + 1)), ...words.map((word) => make("td", { class: "text" }, make("bdi", {}, word))),
    make("td", { class: "text" }, kind), make("td", { class: "text" }, likeness), ...chunks.map((chunk) => make("td", {}, String(chunk + 1)))) : null);
  const heads = [["", ""], ["replaced", "text"], ["became", "text"], ["kind", "text"], ["similarity", "text"], [`reference ${noun}`, ""], [`generated ${noun}`, ""]];
  const more = replaced.filter(({ listed }) => !listed).length;
  return make("section", {}, make("h2", {}, "Replaced words"),
    make("p", { class: "soft" }, `In the ${noun}s these words are marked, with their numbers here.${more ? ` ${more} more, which are less sure, are marked only there.` : ""}`),
    scroller("Replaced words", make("table", { id: "replaced" }, make("thead", {}, make("tr", {}, ...heads.map(([text, kind]) => (text ? make("th", { scope: "col", class: kind }, text) : make("td"))))),
      make("tbody", {}, ...replaced.map(row).filter((node) => node)))));
}

// The system, and links to what the kept columns point at.
function head(pair) {
  const links = Object.entries(pair.kept).filter(([, value]) => address(value)).map(([name, value]) =>
    make("span", {}, make("bdi", {}, name), ": ", outward(value, address(value).host)));
  if (pair.system === null && !links.length) return null;
  return make("p", { class: "soft about-pair" }, pair.system === null ? null : make("span", {}, "system: ", make("bdi", {}, pair.system)), ...links);
}

// An http or https address, or null: other schemes could run something.
function address(text) {
  if (!/^https?:\/\//i.test(text)) return null;
  try { return new URL(text); } catch { return null; }
}

const outward = (value, text) => make("a", { href: address(value).href, target: "_blank", rel: "noopener noreferrer" }, text);

// Whole texts, every reference with its scores, and kept columns; null if nothing is known.
function scored(pair, index) {
  const { generated, references = [], explained, count, scores, mean } = pair.texts;
  const kept = Object.entries(pair.kept);
  if (generated === undefined && !scores && !kept.length) return null;
  const text = (title, value) => make("details", { open: value.length <= SHORT_TEXT }, make("summary", {}, `${title} (${value.length.toLocaleString("en")} characters)`),
    make("p", { class: "whole", dir: "auto" }, value));
  const section = make("section", {}, make("h2", {}, "What was scored"));
  if (generated !== undefined) section.append(text("Generated text", generated));
  if (count === 1 && references.length) section.append(text("Reference", references[0]));
  if (count > 1) {
    section.append(make("p", { id: "chosen" }, `Reference ${explained + 1} of ${count} ${mean ? "is explained here" : "counts"}: it has the highest VCS, then margin, then GAS.`,
      mean ? " The scores of the pair in tables are means over all references." : ""),
      make("ol", { class: "references" }, ...Array.from({ length: count }, (_, k) => make("li", { class: k === explained && "counted" },
        make("p", { class: "soft" }, k === explained ? make("strong", {}, mean ? "explained here" : "counts", scores ? "; " : "") : null,
          scores ? ["vcs", "margin", "gas"].map((name) => `${scoreOf(index, name).label} ${number(scores[k][name])}`).join(", ") : ""),
        references[k] === undefined ? null : references[k].length <= SHORT_TEXT ? make("p", { class: "whole", dir: "auto" }, references[k]) : text("Text", references[k])))));
  }
  if (kept.length) {
    section.append(make("dl", { class: "kept-columns" }, ...kept.flatMap(([name, value]) =>
      [make("dt", {}, make("bdi", {}, name)), make("dd", { dir: "auto" }, address(value) ? outward(value, value) : value)])));
  }
  return section;
}

const slug = (verdict) => verdict.replace(" ", "-");
const icon = (verdict) => draw("svg", { class: "icon", viewBox: "0 0 14 14", "aria-hidden": "true" }, draw("path", { class: `dot ${slug(verdict)}`, d: outline(verdict, 7, 7, 5.5) }));

// The verdicts that chunks of these sides have, in the order of their meanings.
const present = (index, ...sides) => Object.keys(index.verdicts).filter((verdict) => sides.some((side) => verdict in side.counts));

// The outline of a verdict's shape around a point, as a path.
function outline(verdict, x, y, r) {
  const points = (...pairs) => `M${pairs.map(([dx, dy]) => `${(x + dx * r).toFixed(1)} ${(y + dy * r).toFixed(1)}`).join("L")}z`;
  switch (SHAPES[verdict]) {
    case "triangle": return points([-0.9, -1.05], [1.15, 0], [-0.9, 1.05]);
    case "diamond": return points([0, -1.25], [1.25, 0], [0, 1.25], [-1.25, 0]);
    case "square": return points([-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]);
    case "cross": return points([-1.1, -0.6], [-0.6, -1.1], [0, -0.5], [0.6, -1.1], [1.1, -0.6], [0.5, 0], [1.1, 0.6], [0.6, 1.1], [0, 0.5], [-0.6, 1.1], [-1.1, 0.6], [-0.5, 0]);
    default: return `M${(x - r).toFixed(1)} ${y.toFixed(1)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`;
  }
}

function placeOf(side, i, noun) {
  if (side.repeats[i] !== null) return `repeats ${noun} ${side.repeats[i] + 1}`;
  const [start, end, match] = [side.start[i] + 1, side.end[i], `${noun} ${side.match[i] + 1}`];
  if (UNMATCHED.includes(side.verdict[i])) return `nearest: ${match}`;
  const expected = start === end ? String(start) : `${start}\u2013${end}`;
  if (side.verdict[i] === "covered") return `found in ${match}${side.offset[i] ? `; expected: ${expected}` : ""}`;
  return `matches reference ${match}${side.offset[i] ? `; expected: ${expected}` : ""}`;
}

// Returns a function that makes nodes of a text, and explains an abbreviation where it first stands.
function speller(index) {
  const names = new Map(index.scores.filter((score) => score.full).map((score) => [score.label, `${score.full}: ${score.meaning}`]));
  const pattern = new RegExp(`\\b(${[...names.keys()].sort((a, b) => b.length - a.length).join("|")})\\b`);
  return (text) => text.split(pattern).map((part) => {
    if (!names.has(part)) return part;
    const title = names.get(part);
    names.set(part, null);
    return title ? make("abbr", { title }, part) : part;
  });
}

function costBar({ scores, costs }, index) {
  const parts = [["vcs", scores.vcs], ...Object.entries(costs)].map(([name, value]) => [name, Math.max(0, value), `${scoreOf(index, name).label}${name in costs ? " cost" : ""} ${number(value)}`]);
  const bar = make("div", { class: "bar", role: "img", "aria-label": parts.map(([, , text]) => text).join(", ") }, ...parts.filter(([, value]) => value > 0).map(([name, value, text]) => {
    const part = make("span", { class: name, title: text }, make("span", {}, text));
    part.style.flexGrow = value;
    return part;
  }));
  return make("div", {}, bar, make("ul", { class: "costs" }, ...parts.map(([name, , text]) => make("li", {}, make("span", { class: `swatch ${name}` }), text))));
}

function formulas({ scores: s, regularizer: r, strict }, index) {
  const n = (name) => number(s[name]);
  const f1 = (name) => `F1 of precision ${n(`${name}_precision`)} and recall ${n(`${name}_recall`)}`;
  const larger = s.sas > s.nas ? "sas" : "nas";
  const texts = {
    vcs: `margin / ${larger.toUpperCase()} = ${n("margin")} / ${n(larger)}, at least 0`,
    margin: `SAS + NAS \u2212 1 = ${n("sas")} + ${n("nas")} \u2212 1`,
    gas: "cosine of the two whole texts",
    las: f1("las"),
    sas: `(GAS \u2212 (1 \u2212 LAS)) / LAS = (${n("gas")} \u2212 (1 \u2212 ${n("las")})) / ${n("las")}, at least 0`,
    nas: `(NAS F1 \u2212 R) / (1 \u2212 R) = (${n("nas_f1")} \u2212 ${n("window_regularizer")}) / (1 \u2212 ${n("window_regularizer")}), at least 0`,
    nas_f1: `F1 of NAS-D ${n("nas_d")} and NAS-L ${n("nas_l")}`,
    nas_d: f1("nas_d"),
    nas_l: f1("nas_l"),
    ...(strict && {
      substitution: `the largest of ${number(strict.thing_weight, 2)} \u00d7 replaced things ${n("replaced_things")}, replaced actions ${n("replaced_actions")}, qualities ${n("replaced_qualities")} and names ${n("replaced_names")}, less ${strict.rewording} \u00d7 the share of words with only a similar counterpart; 0 to 1`,
      vcs_strict: `VCS, at most ${number(strict.cap)}: 1 \u2212 ${number(strict.slope)} \u00d7 what substitution has above ${strict.allowance}; at least 0`,
    }),
    window_regularizer: `R: windows cover ${r.area} of ${r.grid} cells (${number(r.area / r.grid)}), ${number(r.least)} at least`,
  };
  return make("dl", { id: "formulas" }, ...index.scores.filter(({ name }) => name in texts).flatMap(({ name, label, full }) =>
    [make("dt", {}, `${label} ${n(name)}`), make("dd", { class: "soft" }, full ? `${full}: ${texts[name]}` : texts[name])]));
}
