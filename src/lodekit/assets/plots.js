const plots = [...document.querySelectorAll(".plot")];
for (const place of plots) {
  const figure = JSON.parse(document.getElementById(place.id + "-data").textContent);
  if (matchMedia("(pointer: coarse)").matches) figure.layout.dragmode = false;
  if (matchMedia("(max-width: 40rem)").matches) figure.config.displayModeBar = false;
  Plotly.newPlot(place, figure.data, figure.layout, figure.config);
}
addEventListener("beforeprint", () => plots.forEach((place) => Plotly.relayout(place, { width: 680 })));
addEventListener("afterprint", () => plots.forEach((place) => Plotly.relayout(place, { width: null, autosize: true })));
