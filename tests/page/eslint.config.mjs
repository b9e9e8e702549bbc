// What the modules of report.html are checked for, beside their types.
import js from '@eslint/js';

const browser = [
  'addEventListener', 'atob', 'Blob', 'DecompressionStream', 'devicePixelRatio', 'document', 'getComputedStyle', 'history',
  'HTMLInputElement', 'innerHeight', 'innerWidth', 'location', 'matchMedia', 'performance', 'ResizeObserver', 'Response', 'URLSearchParams',
];

export default [
  {
    // The modules are beside the code that puts them into the page. It is run in the root of the workspace.
    files: ['reqtrace-output/src/html/page/*.js'],
    ...js.configs.recommended,
    languageOptions: { globals: Object.fromEntries(browser.map((name) => [name, 'readonly'])) },
    rules: {
      ...js.configs.recommended.rules,
      eqeqeq: 'error',
      'no-eval': 'error',
      'no-implied-eval': 'error',
      'no-new-func': 'error',
      'no-restricted-properties': ['error',
        { property: 'innerHTML', message: 'Names are of strangers: set text.' },
        { property: 'outerHTML', message: 'Names are of strangers: set text.' },
        { property: 'insertAdjacentHTML', message: 'Names are of strangers: set text.' },
        { object: 'document', property: 'write', message: 'Names are of strangers: set text.' }],
      'no-restricted-globals': ['error', 'fetch', 'XMLHttpRequest', 'WebSocket', 'EventSource', 'importScripts'],
      'no-var': 'error',
      'prefer-const': 'error',
    },
  },
];
