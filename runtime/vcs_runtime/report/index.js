"use strict";
// The overview of many pairs, and which view the address asks for.

function showIndex(index, place) {
  index.headline = index.scores.filter((score) => score.headline);
  index.ordered = [...index.headline, ...index.scores.filter((score) => !score.headline)];
  const rows = index.rows.map(([id, system, page, flags, ...values], k) => ({ id, system, page, flags,
    scores: Object.fromEntries(index.scores.map(({ name }, i) => [name, values[i]])),
    present: index.present[k], kept: index.kept[k] ?? [] }));
  const failed = index.failed.map(([id, reason, system, kept]) => ({ id, reason, system, page: null, flags: [], scores: null, present: 0, kept }));
  const choice = scoreChoice(index);
  const listed = pairList(index, rows, failed);
  const several = index.systems.length > 1;
  const wide = several ? wideTable(index, rows, choice) : null;
  const reasons = make("div", { class: "lead" }, ...index.sentences.map((text) => make("p", {}, text)));
  const lead = [leadFigures(index), reasons];
  place.append(make("h1", {}, index.title), make("p", { class: "soft about" }, index.about.join(" \u00b7 ")),
    ...(index.mostly_zero ? lead.reverse() : lead), meanings(index), settings(index),
    make("h2", {}, "Means"), meansTable(index),
    ...(several ? [make("h2", {}, "Systems compared"), comparison(index, choice),
      make("h2", {}, "One system against another"), scatter(index, rows, choice)] : []),
    ...(index.systems.some((system) => system.scored > 1) ? [make("h2", {}, "How the scores are distributed"), distributions(index, choice)] : []),
    ...(several ? [make("h2", {}, "Videos by system"), wide.box] : []),
    make("h2", {}, "Pairs"), listed.box);
  const parts = [listed, ...(several ? [wide] : [])];
  const folded = () => place.querySelectorAll("details:not([open])");
  let opened = [];
  return {
    print: () => { opened = [...folded()]; opened.forEach((node) => { node.open = true; }); parts.forEach((part) => part.print()); },
    restore: () => { opened.forEach((node) => { node.open = false; }); parts.forEach((part) => part.restore()); },
  };
}

// The headline means: of the one system, or the best of several.
function leadFigures(index) {
  const scored = index.systems.filter((system) => system.scored);
  const figure = (score) => {
    const [best, worst] = score.smaller ? ["lowest", "highest"] : ["highest", "lowest"];
    const ranked = [...scored].sort((a, b) => (score.smaller ? -1 : 1) * (b.statistics[score.name].mean - a.statistics[score.name].mean));
    const [first, last] = [ranked[0], ranked[ranked.length - 1]];
    const { mean, low, high } = first.statistics[score.name];
    const count = `${first.scored} ${first.scored === 1 ? "pair" : "pairs"}`;
    const details = ranked.length === 1 && first.scored === 1 ? [count] : ranked.length === 1 ? [`mean of ${count}`, make("br"), `95 %: ${number(low)} to ${number(high)}`]
      : [`${best} mean: `, make("bdi", {}, first.name), `, ${count}`, make("br"), `${worst}: ${number(last.statistics[score.name].mean)}, `, make("bdi", {}, last.name)];
    return make("div", {}, make("dt", {}, term(score)), make("dd", {}, number(mean)), make("dd", { class: "soft" }, ...details));
  };
  return scored.length ? make("dl", { class: "headline lead-figures" }, ...index.headline.map(figure)) : make("p", { class: "lead" }, "No pair could be scored.");
}

const meanings = (index) => make("details", {}, make("summary", {}, "What the scores mean"),
  make("dl", { class: "soft" }, ...index.ordered.flatMap(({ label, full, meaning }) => [make("dt", {}, label), make("dd", {}, full ? `${full}: ${meaning}` : meaning)])));

function settings(index) {
  const several = index.settings.length > 1;
  const parts = index.settings.flatMap(([signature, rows]) => [
    several ? make("p", {}, ...index.systems.filter((system) => system.signature === signature).flatMap((system, k) => [k ? ", " : "", make("bdi", {}, system.name)])) : null,
    make("dl", { class: "soft" }, ...rows.flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]), make("dt", {}, "Signature"), make("dd", {}, make("code", {}, signature)))]);
  const first = several ? "The systems were scored differently" : index.settings[0][1].slice(0, 3).map(([name, text]) => `${name}: ${text}`).join(". ");
  return make("details", { id: "settings" }, make("summary", {}, "How the scores were made", first && ". ", make("span", { class: "soft" }, first && `${first}.`)), ...parts.filter((part) => part));
}

(async () => {
  const index = await block("index");
  const main = document.querySelector("main");
  let overview = null; // kept while a pair is shown, with its filters and its place
  let shown = null;
  let routes = 0;

  async function route() {
    const asked = /^#pair-(\d+)$/.exec(location.hash);
    const wanted = index.single ? 0 : asked && Number(asked[1]) < index.pages ? Number(asked[1]) : null;
    const own = routes += 1;
    if (overview && overview.place.isConnected) overview.top = scrollY;
    if (wanted === null) {
      if (!overview) {
        overview = { place: make("div", { class: "overview" }), top: 0 };
        overview.view = showIndex(index, overview.place);
      }
      shown = overview.view;
      main.replaceChildren(overview.place);
      document.title = index.title;
      scrollTo(0, overview.top);
    } else {
      const place = make("div");
      const pair = await block(`block-${wanted}`);
      if (own !== routes) return; // another view was asked for meanwhile
      main.replaceChildren(place);
      if (!index.single) place.append(pairLinks(index, wanted));
      shown = showPair(pair, index, place);
      if (!index.single) scrollTo(0, 0);
    }
    document.body.dataset.ready = location.hash || "#";
  }

  addEventListener("hashchange", route);
  addEventListener("beforeprint", () => shown?.print());
  addEventListener("afterprint", () => shown?.restore());
  await route();
})();
