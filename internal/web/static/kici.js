// Only what a page without scripts cannot do: keys, following a log, folding groups. htmx and its SSE extension do the rest.
(() => {
  "use strict";
  const $ = (s, r = document) => r.querySelector(s);
  const $$ = (s, r = document) => [...r.querySelectorAll(s)];
  const base = document.body.dataset.base || "";

  // Following: a log that is scrolled to its end stays there; scrolling up stops it, the Follow button starts it again.
  let follow = true;
  const log = () => $(".log[data-live]");
  const toEnd = () => { const l = log(); if (l && follow) l.scrollTop = l.scrollHeight; };
  document.addEventListener("scroll", (e) => {
    if (e.target !== log()) return;
    follow = e.target.scrollHeight - e.target.scrollTop - e.target.clientHeight < 40;
    const b = $("#follow"); if (b) b.hidden = follow;
  }, true);
  document.addEventListener("click", (e) => {
    if (e.target.closest("#follow")) { follow = true; toEnd(); e.preventDefault(); }
    const g = e.target.closest(".log .grp .x");
    if (g) fold(g.closest(".l"));
    const d = e.target.closest("[data-close]"); if (d) d.closest("dialog").close();
  });
  document.body.addEventListener("htmx:sseMessage", () => requestAnimationFrame(toEnd));
  document.body.addEventListener("htmx:afterSettle", () => { if (!location.hash) toEnd(); });
  if (!location.hash) toEnd();

  function fold(line) {
    const hide = line.dataset.folded !== "1";
    line.dataset.folded = hide ? "1" : "0";
    for (let n = line.nextElementSibling; n && !n.matches(".grp,.endgrp"); n = n.nextElementSibling) n.hidden = hide;
  }

  // Keys: / search, j k move, Enter open, g r / g q / g a go, ? help.
  let g = 0;
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.target.matches("input,textarea,select")) {
      if (e.key === "Escape") e.target.blur();
      return;
    }
    const rows = $$("tr[data-href], a.job");
    const at = rows.findIndex((r) => r.matches("[aria-selected='true'],:focus"));
    const go = (i) => {
      const r = rows[Math.max(0, Math.min(rows.length - 1, i))];
      if (!r) return;
      rows.forEach((x) => x.removeAttribute("aria-selected"));
      if (r.matches("a")) r.focus(); else { r.setAttribute("aria-selected", "true"); r.scrollIntoView({ block: "nearest" }); }
    };
    if (Date.now() - g < 900) {
      const to = { r: "/runs", q: "/queue", a: "/agents", s: "/scalers", d: "/deliveries" }[e.key];
      g = 0;
      if (to) { location.href = base + to; e.preventDefault(); return; }
    }
    switch (e.key) {
      case "/": $(".search input")?.focus(); e.preventDefault(); break;
      case "j": go(at + 1); break;
      case "k": go(at < 0 ? 0 : at - 1); break;
      case "Enter": if (at >= 0 && rows[at].dataset.href) location.href = rows[at].dataset.href; break;
      case "g": g = Date.now(); break;
      case "?": $("#keys")?.showModal(); break;
    }
  });
  // Clock: durations of what runs now count on between two messages.
  setInterval(() => {
    const now = Date.now();
    for (const t of $$("[data-since]")) t.textContent = dur(now - Number(t.dataset.since));
  }, 1000);
  function dur(ms) {
    const s = Math.max(0, ms) / 1000;
    if (s < 60) return s.toFixed(s < 10 ? 1 : 0) + " s";
    const m = Math.floor(s / 60), p = (n) => String(n).padStart(2, "0");
    return m < 60 ? m + " m " + p(Math.floor(s % 60)) : Math.floor(m / 60) + " h " + p(m % 60);
  }
})();
