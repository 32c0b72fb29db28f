// Keeps the part `#live` of the page up to date: asks for it anew and changes only what is different, so that focus,
// selection and scroll positions stay. It does not ask while nobody looks, and pauses longer while nobody answers.
// It polls, and holds no stream open: browsers open at most six connections to a host, which seven tabs would use up.
"use strict";
(() => {
  const EVERY = 2000, LONGEST = 60000, LIMIT = 30000;
  const live = document.getElementById("live"), gone = document.getElementById("gone");
  const button = document.getElementById("pause");
  let paused = false, failures = 0, timer = 0, asking = false;

  const keep = { beforeAttributeUpdated: (name) => !(name === "open" || name === "hidden") };

  async function refresh() {
    if (paused || document.hidden || asking) return;
    asking = true;
    try {
      const answer = await fetch(location.href, {
        headers: { "X-Everspot-Part": "live" }, cache: "no-store", redirect: "error", signal: AbortSignal.timeout(LIMIT),
      });
      if (!answer.ok) throw new Error(answer.statusText);
      const text = await answer.text();
      if (!paused) Idiomorph.morph(live, text, { morphStyle: "innerHTML", ignoreActiveValue: true, callbacks: keep });
      failures = 0;
    } catch (error) {
      failures += 1;
    }
    asking = false;
    if (gone.hidden !== (failures === 0)) gone.hidden = failures === 0;
    document.documentElement.dataset.asked = String(Number(document.documentElement.dataset.asked || 0) + 1);
    later();
  }

  function later() {
    clearTimeout(timer);
    timer = setTimeout(refresh, Math.min(LONGEST, EVERY * 2 ** Math.min(failures, 10)));
  }

  if (!live || !document.getElementById("as-of") && !document.getElementById("first") && !document.getElementById("trouble")) return;
  button.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    button.setAttribute("aria-pressed", String(paused));
    if (!paused) refresh();
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
  later();
})();
