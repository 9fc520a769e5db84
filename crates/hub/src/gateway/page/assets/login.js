// The login: posts the key, keeps the token, and goes to the page.

import { TOKEN, request } from '/page/api.js';

const form = document.getElementById('login');
const error = document.getElementById('error');

form.addEventListener('submit', async (event) => {
  event.preventDefault();
  error.textContent = '';
  try {
    const response = await fetch('/login', { method: 'POST', body: new URLSearchParams(new FormData(form)) });
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.message);
    localStorage.setItem(TOKEN, answer.token);
    form.reset();
    location.replace('/');
  } catch (failure) {
    error.textContent = failure.message;
    form.elements.key.select();
  }
});

// A link of another site opens this document, because the cookie is not sent with it.
if (localStorage.getItem(TOKEN)) {
  request('/page/login', { stay: true }).then(() => location.replace('/'), () => {});
}
