// Keeps the key that the proxy of "proa dashboard" hands to the browser that it has opened, and goes to the page.
'use strict';
const key = document.querySelector('meta[name="key"]')?.content;
if (key) sessionStorage.setItem('proa.key', key);
location.replace('/dashboard/');
