// Sets the theme before the page is drawn, so that it does not flash. The choice is the only thing that the page keeps for long.
(function () {
  'use strict';
  let theme = null;
  try { theme = localStorage.getItem('proa.theme'); } catch { /* storage may be refused */ }
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
})();
