// Everything can be read without this: it shows tool tips where there is no mouse, and filters recordings.
(() => {
  const tip = document.createElement('div');
  tip.id = 'tip'; tip.hidden = true; document.body.append(tip);
  document.addEventListener('pointerup', (event) => {
    const mark = event.pointerType === 'mouse' ? null : event.target.closest('svg :has(> title)');
    tip.hidden = !mark;
    if (!mark) return;
    tip.textContent = mark.querySelector('title').textContent;
    const box = mark.getBoundingClientRect();
    const left = Math.min(box.left, document.documentElement.clientWidth - tip.offsetWidth - 8);
    tip.style.left = Math.max(8, left) + scrollX + 'px';
    tip.style.top = box.bottom + 8 + scrollY + 'px';
  });
  const filter = document.querySelector('.filter');
  if (filter) {
    filter.hidden = false;
    filter.addEventListener('click', (event) => {
      const chosen = event.target.closest('button');
      if (!chosen) return;
      for (const button of filter.children) button.setAttribute('aria-pressed', String(button === chosen));
      for (const part of document.querySelectorAll('.recording'))
        part.hidden = chosen.value !== '' && part.dataset.errors !== chosen.value;
    });
  }
})();
