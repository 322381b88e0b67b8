// What a page of a run or a job cannot do without a script: parts that change, a log that follows, that is loaded as one scrolls,
// and whose lines can be selected. kici.js gives the streams.
(() => {
  "use strict";
  const $ = (s, r = document) => r.querySelector(s);
  const $$ = (s, r = document) => [...r.querySelectorAll(s)];
  const parse = (html) => { const t = document.createElement("template"); t.innerHTML = html; return t.content; };
  const stream = (url) => window.htmx?.createEventSource(url);

  // The server sends the elements that changed; each has the id of the one that it replaces.
  const live = $("[data-live]");
  const changes = live && window.Idiomorph && stream(live.dataset.live);
  if (changes) {
    changes.addEventListener("patch", (e) => {
      for (const now of [...parse(e.data).children]) {
        const old = document.getElementById(now.id);
        if (old) Idiomorph.morph(old, now, { morphStyle: "outerHTML" });
      }
    });
    changes.addEventListener("end", () => changes.close());
  }

  const box = $("#log"), button = $("#follow");
  if (!box) return;
  const [most, keep, chunk] = [3000, 2000, 500]; // lines on the page: at most, after a cut; and as many at once when one scrolls
  const windowed = box.dataset.window; // one step alone
  let [first, last, total] = ["first", "last", "total"].map((k) => Number(box.dataset[k] || 0));
  let follow = !!box.dataset.stream && !location.hash;
  const lines = () => $$(".l", box);
  const number = (el) => Number(/(\d+)$/.exec(el?.id || "")?.[1] || 0);
  const toEnd = () => { if (follow) box.scrollTop = box.scrollHeight; };

  // Lines that arrive. The page keeps to the end until the reader scrolls up; Follow takes it back.
  let pending = [];
  let group = box.lastElementChild?.matches("details[data-unended]") ? box.lastElementChild : null;
  function arrive(html) { if (pending.push(html) === 1) requestAnimationFrame(draw); }
  function draw() {
    if (windowed && last < total) { // the reader is elsewhere: only count
      total = Math.max(total, Number([...pending.join("").matchAll(/ id="L(\d+)"/g)].pop()?.[1] || 0));
      pending = [];
      return;
    }
    let n = 0, from = pending.length;
    while (from > 0 && !(follow && n > keep)) n += pending[--from].split("<div").length - 1;
    if (from > 0) { box.replaceChildren(); group = null; } // a burst: not even all that is new
    for (const html of pending.slice(from)) for (const el of [...parse(html).children]) place(el);
    pending = [];
    if (follow && (from > 0 || lines().length > most)) cutTop();
    if (windowed) { const all = lines(); first = number(all[0]) || first; last = total = number(all[all.length - 1]) || last; }
    toEnd();
  }
  function place(el) {
    if (el.matches(".step,.grp")) shut();
    if (!el.matches(".grp")) {
      (group || box).append(el);
      if (el.matches(".endgrp")) shut();
      return;
    }
    group = document.createElement("details");
    group.className = "g";
    group.open = true;
    const head = document.createElement("summary");
    head.className = el.className;
    head.id = el.id;
    head.append(...el.childNodes, Object.assign(document.createElement("span"), { className: "n" }));
    group.append(head);
    box.append(group);
  }
  // A group folds when it is complete, unless it has an error or the line that was linked to.
  function shut() {
    if (!group) return;
    const n = $$(".l", group).length - 1 - (group.lastElementChild.matches(".endgrp") ? 1 : 0);
    $(".n", group).textContent = n + (n === 1 ? " line" : " lines");
    if (!$(".err,.hit,.sel", group)) group.open = false;
    group.removeAttribute("data-unended");
    group = null;
  }
  function cutTop() {
    const all = lines();
    const stay = all[Math.max(all.length - keep, 0)];
    let top = stay;
    while (top && top.parentElement !== box) top = top.parentElement;
    if (top) while (box.firstElementChild !== top) box.firstElementChild.remove();
    if (top && top !== stay && stay !== $("summary", top)) while (top.children[1] !== stay) top.children[1].remove();
    if (windowed) first = number(lines()[0]); else box.prepend(Object.assign(document.createElement("span"), { className: "more", textContent: "earlier lines left this page; choose their step, or Raw" }));
    links();
  }
  function cutEnd() {
    const all = lines();
    if (all.length <= most) return;
    for (const l of all.slice(keep)) l.remove();
    for (const d of $$("details.g", box)) if (!$(".l", d)) d.remove();
    group = null;
    last = number(lines().pop());
  }

  // Lines before and after those on the page: links that are followed when one scrolls near them.
  const page = (n) => { const u = new URL(location.href); u.searchParams.set("line", n); u.searchParams.delete("q"); u.hash = ""; return u.href; };
  function links() {
    if (!windowed) return;
    for (const [way, on, to, text] of [["up", first > 1, first - 1, "Earlier lines, 1 to " + (first - 1)], ["down", last < total, last + 1, "Later lines, " + (last + 1) + " to " + total]]) {
      let a = $(`[data-more=${way}]`, box);
      if (!on) { a?.remove(); continue; }
      if (!a) {
        a = Object.assign(document.createElement("a"), { className: "more" });
        a.dataset.more = way;
      }
      a.href = page(to);
      a.textContent = text;
      way === "up" ? box.prepend(a) : box.append(a);
    }
  }
  let busy = false;
  async function more(up) {
    const from = up ? Math.max(1, first - chunk) : last + 1, to = up ? first - 1 : last + chunk;
    if (busy || !windowed || to < from || !up && last >= total) return;
    busy = true;
    try {
      const r = await fetch(`${windowed}&first=${from}&last=${to}`);
      if (!r.ok) return;
      const got = [...parse(await r.text()).children];
      const mark = $(`[data-more=${up ? "up" : "down"}]`, box);
      const [height, top] = [box.scrollHeight, box.scrollTop];
      if (up) {
        mark ? mark.after(...got) : box.prepend(...got);
        box.scrollTop = top + box.scrollHeight - height;
        first = from;
        cutEnd();
      } else {
        mark ? mark.before(...got) : box.append(...got);
        const end = lines().pop();
        last = Math.max(last, number(end));
        total = Math.max(total, last);
        if (!got.length) total = last;
        if (lines().length > most) { const at = end.offsetTop; cutTop(); box.scrollTop -= at - end.offsetTop; }
      }
      links();
    } catch { /* the links are still there */ } finally { busy = false; }
  }
  box.addEventListener("scroll", () => {
    const end = box.scrollHeight - box.scrollTop - box.clientHeight;
    if (box.dataset.stream) { follow = end < 40 && !(windowed && last < total); button.hidden = follow; }
    if (windowed && box.scrollTop < 400 && first > 1) more(true);
    if (windowed && end < 400 && last < total) more(false);
  }, { passive: true });
  function following() {
    if (windowed && last < total || !box.dataset.stream && $("[data-jump=end]") && last < total) { $("[data-jump=end]")?.click(); return; }
    follow = true;
    button.hidden = true;
    toEnd();
    follow = !!box.dataset.stream;
  }
  button.addEventListener("click", following);
  const s = box.dataset.stream && stream(box.dataset.stream);
  if (s) {
    s.addEventListener("lines", (e) => arrive(e.data));
    s.addEventListener("fresh", () => { pending = []; group = null; box.replaceChildren(); }); // another attempt began
    s.addEventListener("end", () => { s.close(); delete box.dataset.stream; button.hidden = true; });
  }

  // Lines that the address names: #L12, #L12-L20, and with several steps on the page #L2.12.
  let anchor = null; // where a selection began
  function named() {
    const m = /^#L(?:(\d+)\.)?(\d+)(?:-L(?:\d+\.)?(\d+))?$/.exec(location.hash);
    if (!m) return null;
    const [a, b] = [Number(m[2]), Number(m[3] || m[2])];
    return { step: m[1], from: Math.min(a, b), to: Math.max(a, b) };
  }
  const idOf = (step, n) => "L" + (step && !windowed ? step + "." : "") + n;
  function select() {
    for (const l of $$(".l.sel", box)) l.classList.remove("sel");
    const at = named();
    if (!at) return false;
    const line = document.getElementById(idOf(at.step, at.from));
    if (!line) return elsewhere(at);
    for (let n = at.from; n <= at.to && n < at.from + most; n++) document.getElementById(idOf(at.step, n))?.classList.add("sel");
    anchor = { step: at.step, n: at.from };
    if (line.closest("details") && !line.matches("summary")) line.closest("details").open = true;
    return line;
  }
  function elsewhere(at) { // not on this page: open the window that has it, once
    const q = new URLSearchParams(location.search);
    if (q.get("line") === String(at.from) || !windowed && !at.step || windowed && at.from > total) return false;
    const step = at.step || q.get("step");
    const to = new URLSearchParams({ step, line: at.from });
    for (const k of ["time", "attempt"]) if (q.get(k)) to.set(k, q.get(k));
    location.replace(`${box.dataset.job}?${to}#L${at.from}${at.to > at.from ? "-L" + at.to : ""}`);
    return false;
  }
  function show() {
    const line = select();
    if (!line) return false;
    follow = false;
    button.hidden = !box.dataset.stream;
    line.scrollIntoView({ block: "center" });
    return true;
  }
  box.addEventListener("click", (e) => {
    const a = e.target.closest("a.no");
    if (!a || e.ctrlKey || e.metaKey || !a.hash) return;
    e.preventDefault();
    const m = /^#L(?:(\d+)\.)?(\d+)$/.exec(a.hash);
    let hash = a.hash;
    if (e.shiftKey && anchor && m && anchor.step === m[1]) {
      const [from, to] = [Math.min(anchor.n, Number(m[2])), Math.max(anchor.n, Number(m[2]))];
      if (to > from) hash = `#${idOf(m[1], from)}-${idOf(m[1], to)}`;
    }
    const u = new URL(a.href);
    u.hash = hash;
    history.replaceState(null, "", u.href);
    const line = select();
    if (line && !e.shiftKey) anchor = { step: m?.[1], n: Number(m?.[2]) };
  });
  addEventListener("hashchange", show);

  if (!show()) {
    if (box.dataset.bottom) follow = false;
    if (follow) toEnd();
    else if (box.dataset.bottom) {
      const end = document.getElementById(box.dataset.bottom);
      if (end?.closest("details")) end.closest("details").open = true;
      if (end) box.scrollTop = end.offsetTop + end.offsetHeight - (end.matches(".hit") ? box.clientHeight / 2 : box.clientHeight - 24);
    }
  }

  // Keys of the log: f follow or the end, n and N matches, s search in it, u up to the run.
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.target.matches("input,textarea,select") || $("dialog[open]")) return;
    switch (e.key) {
      case "f": following(); break;
      case "n": $("[data-match=next]")?.click(); break;
      case "N": $("[data-match=prev]")?.click(); break;
      case "u": $("[data-up]")?.click(); break;
      case "s": {
        const input = $(".log-tools input[name=q]");
        input?.focus(); input?.select(); if (input) e.preventDefault();
      }
    }
  });
})();
