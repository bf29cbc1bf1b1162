// Loads the modules of the page when its frame has been painted, so that they do not compete with the first paint for the processor. A page
// in the background is not painted, and loads them at once.
(function () {
  'use strict';
  const start = () => {
    const needed = ['dom', 'api']; // what app.js imports, and what the first view does if nobody has to log in
    try { if (sessionStorage.getItem('proa.key')) needed.push('overview', 'health'); } catch { /* storage may be refused */ }
    for (const name of needed) {
      const link = document.createElement('link');
      link.rel = 'modulepreload';
      link.href = name + '.js';
      document.head.append(link);
    }
    import('./app.js').catch((e) => {
      // What a module throws is reported as of any script. Only the texts of browsers tell it from a module that could not be loaded.
      if (!/import.*module/i.test(e)) reportError(e);
      else document.getElementById('main').textContent = 'The page could not be loaded. Load it again. (' + e.message + ')';
    });
  };
  if (document.hidden) start();
  else requestAnimationFrame(() => setTimeout(start));
})();
