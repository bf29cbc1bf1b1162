// The twelve hops: their fixed order, names and explanations. Their colours are in the style sheet, by number.

import { h } from './dom.js';

export const hops = [
  null,
  { id: 'client', name: 'client', part: 'kubectl', title: 'The client sends a request',
    text: 'kubectl reads your file, asks the server which resources it has, and sends one HTTP request for each object. Nothing has happened in the cluster yet. “apply” is a PATCH: it says which fields you want, not what the whole object is.',
    wrong: 'A wrong context or namespace, a server that cannot be reached, a kind that the server does not have.', look: 'kubectl apply -f web.yaml -v=8' },
  { id: 'authenticate', name: 'authenticate', part: 'API server', title: 'Who are you?',
    text: 'The API server finds out who sends the request: by the client certificate of the TLS connection, or by the bearer token in a header. The result is a user name and groups. Then the request waits for a seat: priority and fairness let no user crowd the others out.',
    wrong: 'An expired certificate or token: 401 Unauthorized. A full queue: 429 Too Many Requests.', look: 'kubectl auth whoami' },
  { id: 'authorize', name: 'authorize', part: 'API server', title: 'May you?',
    text: 'The user, the verb and the resource are compared with the rules of Roles and ClusterRoles that bind the user. Nothing is allowed unless a rule allows it. Nodes have an authorizer of their own: each may touch only its own Pods and what they use.',
    wrong: 'No rule: 403 Forbidden, with the name of the user, the verb and the resource.', look: 'kubectl auth can-i create deployments' },
  { id: 'mutate', name: 'mutate', part: 'API server', title: 'What becomes of it: mutating admission',
    text: 'Plugins and webhooks may change the object before it is checked: they add the service account, default tolerations, a sidecar. Each webhook is an HTTPS request to another program, and your request waits for it.',
    wrong: 'A webhook that does not answer: the write fails or waits up to its timeout.', look: 'kubectl get mutatingwebhookconfigurations' },
  { id: 'schema', name: 'schema', part: 'API server', title: 'Is it right, and whose field is it?',
    text: 'The object is decoded into its type, defaults are filled in, and the fields that you applied are merged into the stored object. managedFields remember which manager set which field, so that two managers do not undo each other unseen.',
    wrong: 'An unknown field, a wrong type; a conflict with another field manager: 409.', look: 'kubectl get deploy web -o yaml --show-managed-fields' },
  { id: 'validate', name: 'validate', part: 'API server', title: 'May it be: validating admission',
    text: 'The finished object is checked: the rules of its kind, quota, pod security, policies in CEL and validating webhooks. From here on nobody changes it any more; it is accepted or refused.',
    wrong: 'A value that is not allowed: 422. A policy or quota that refuses: 403, with its message.', look: 'kubectl apply --dry-run=server -f web.yaml' },
  { id: 'commit', name: 'commit', part: 'store', title: 'One transaction in the store',
    text: 'The object is written with a compare-and-swap: only if nobody has written it meanwhile. The store gives the write a revision, one number for the whole cluster, which becomes the resourceVersion. When the disk has it, the client gets its answer. kubectl ends here; the cluster begins here.',
    wrong: 'A slow or full disk. Two writers at once: 409 Conflict, and one of them tries again.', look: 'kubectl get deploy web -o jsonpath={.metadata.resourceVersion}' },
  { id: 'watch', name: 'watch', part: 'watch cache', title: 'Everybody who watches hears of it',
    text: 'The API server keeps the present state of each resource in memory and tells every watcher about the change. No part of the cluster calls another one: they all watch objects and write objects. That is why there are causes here and no callers.',
    wrong: 'A watcher that is too slow is disconnected and has to list again.', look: 'kubectl get pods --watch' },
  { id: 'control', name: 'control', part: 'controllers', title: 'Controllers make what is wanted',
    text: 'The Deployment controller sees the Deployment and creates a ReplicaSet; the ReplicaSet controller sees that and creates Pods. Each compares what should be with what is, and makes one step. Each of their writes is a request of its own and goes through hops 2 to 8 again.',
    wrong: 'Quota or admission refuses the Pods; then the reason is in the ReplicaSet, not in the Deployment.', look: 'kubectl describe rs' },
  { id: 'schedule', name: 'schedule', part: 'scheduler', title: 'A node is chosen',
    text: 'A Pod without a node enters the scheduler’s queue. Filters remove the nodes that cannot take it: too little memory, taints, affinity. The rest get scores, and the best one wins. The answer is one small write: the binding.',
    wrong: 'No node fits: the Pod stays Pending, and each node has its own reason.', look: 'proa why pod/web' },
  { id: 'node', name: 'node', part: 'node agent', title: 'The node starts containers',
    text: 'The agent of that node sees the Pod. It mounts the volumes, makes the sandbox with its network namespace and address, pulls the images, and starts the containers in order. Probes tell when the Pod is ready. What it sees it writes as the status, through hops 2 to 8.',
    wrong: 'An image that cannot be pulled, a container that crashes, a probe that never succeeds.', look: 'kubectl describe pod web' },
  { id: 'network', name: 'network', part: 'network', title: 'Traffic finds it',
    text: 'A ready Pod gets into the EndpointSlices of its Services. On every node they become rules of the kernel, so that a connection to the Service’s address goes to one of the Pods. DNS, Ingress and Gateway lead there by name. Now it serves: the first time that a Pod answers a client is in the trace as “first answer”.',
    wrong: 'A selector that matches nothing, a Pod that is not ready, a network policy that refuses.', look: 'kubectl get endpointslices' },
];

// hopGroup returns the hop in whose group a span is listed, as “proa trace” lists them. A write of a controller, of the scheduler or of a node
// is part of that one's work; others are in the group of the API server, which is that of hop 2.
export function hopGroup(s, isFirstWrite = false) {
  if (s.hop) return s.hop;
  const actor = s.actor || '';
  if (isFirstWrite || s.hidden) return 2;
  if (actor.startsWith('system:node:')) return 11;
  if (actor === 'system:kube-scheduler') return 10;
  return actor.startsWith('system:serviceaccount:kube-system:') ? 9 : 2;
}

// groupTitle is the title of such a group.
export const groupTitle = (n) => (n === 2 ? '2–7 API server' : `${n} ${hops[n].name}`);

// hopTag shows a hop by its colour, number and name.
export function hopTag(n, long = false) {
  const hop = hops[n];
  if (!hop) return h('span', { class: 'hop-tag hop-0' }, 'request');
  return h('span', { class: 'hop-tag hop-' + n, title: hop.title }, h('span', { class: 'hop-number' }, n), hop.name, long && h('span', { class: 'hop-part' }, hop.part));
}
