// Draws every chart of the page from the specs embedded in it. Nothing is fetched: the page's policy forbids it.
const read = (id) => JSON.parse(document.getElementById(id).textContent);
const specs = read("chart-specs");
const datasets = read("chart-data");
const config = read("chart-config");
const options = {
  renderer: "svg",
  config,
  actions: { export: true, source: false, compiled: false, editor: false },
  downloadFileName: "paceline-chart",
};

for (const place of document.querySelectorAll("[data-chart]")) {
  const name = place.dataset.chart;
  window
    .vegaEmbed(place, { ...specs[name], datasets }, { ...options, downloadFileName: `paceline-${name}` })
    .then(() => place.classList.add("drawn"))
    .catch((error) => {
      place.textContent = `This chart could not be drawn: ${error.message}`;
      console.error(error);
    });
}

// The comparisons of a large study are many: typing narrows them down.
for (const box of document.querySelectorAll("input[data-filter]")) {
  const rows = [...document.getElementById(box.dataset.filter).tBodies[0].rows];
  box.hidden = rows.length < 12;
  box.addEventListener("input", () => {
    const words = box.value.toLowerCase().split(/\s+/);
    for (const row of rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
  });
}
