// Writes the JSON values of its input as YAML, with the functions of the page. yaml_test.go compares what YAML makes of them.

import fs from 'node:fs';

const source = fs.readFileSync(new URL('../../ui/static/yaml.js', import.meta.url));
const { toYAML } = await import('data:text/javascript;base64,' + source.toString('base64'));
process.stdout.write(JSON.stringify(JSON.parse(fs.readFileSync(0, 'utf8')).map(toYAML)));
