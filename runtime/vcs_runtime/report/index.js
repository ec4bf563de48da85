"use strict";
// The overview of many pairs, and which view the address asks for.

function showIndex(index, place) {
  index.headline = [...new Set([...index.report.map((name) => scoreOf(index, name)), ...index.scores.filter((score) => score.headline)])]; // the ones to report first
  index.ordered = [...index.headline, ...index.scores.filter((score) => !score.headline)];
  const rows = index.rows.map(([id, system, page, flags, ...values], k) => ({ id, system, page, flags,
    scores: Object.fromEntries(index.scores.map(({ name }, i) => [name, values[i]])),
    present: index.present[k], kept: index.kept[k] ?? [] }));
  const failed = index.failed.map(([id, reason, system, kept]) => ({ id, reason, system, page: null, flags: [], scores: null, present: 0, kept }));
  const choice = scoreChoice(index);
  const listed = pairList(index, rows, failed);
  const several = index.systems.length > 1;
  const wide = several ? wideTable(index, rows, choice) : null;
  const any = scoredSystems(index).length > 0;
  place.append(make("h1", {}, index.title), make("p", { class: "soft about" }, index.about.join(" \u00b7 ")), make("p", { class: "lead" }, index.rule || "No pair could be scored."),
    ...(several && any ? [choice.box, systemsTable(index, choice)] : any ? [leadFigures(index)] : []),
    ...index.sentences.map((text) => make("p", { class: "reasons" }, text)), meanings(index), settings(index),
    ...(several ? [make("h2", {}, "One system against another"), scatter(index, rows, choice)]
      : index.systems[0].scored > 1 ? [make("h2", {}, "How the scores are distributed"), distribution(index, choice)] : []),
    make("h2", {}, "Means of every score"), meansTable(index),
    ...(several ? [make("h2", {}, "Videos by system"), wide.box] : []),
    make("h2", {}, "Pairs"), listed.box);
  const parts = [listed, ...(several ? [wide] : [])];
  const folded = () => place.querySelectorAll("details:not([open])");
  let opened = [];
  return {
    print: () => { choice.draw(true); opened = [...folded()]; opened.forEach((node) => { node.open = true; }); parts.forEach((part) => part.print()); },
    restore: () => { choice.draw(false); opened.forEach((node) => { node.open = false; }); parts.forEach((part) => part.restore()); },
  };
}

// The means of one system; the score to report stands first.
function leadFigures(index) {
  const [{ scored, statistics }] = index.systems;
  const figure = (score) => {
    const { mean, low, high } = statistics[score.name];
    return make("div", {}, make("dt", {}, term(score)), make("dd", {}, number(mean)),
      make("dd", { class: "soft" }, ...(scored === 1 ? [] : [`95 %: ${number(low)} to ${number(high)}`, make("br")]), score.name === "margin" ? "SAS + NAS \u2212 1" : score.full || score.meaning));
  };
  return make("dl", { class: "headline lead-figures" }, ...index.headline.map(figure));
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
