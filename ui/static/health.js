// Says how objects do. The states are ok, progress, warn, bad, idle and unknown; the rules for each kind are written here.

const words = { ok: 'Healthy', progress: 'Progressing', warn: 'Degraded', bad: 'Failed', idle: 'Done', unknown: 'Unknown' };
const rank = { ok: 0, idle: 0, progress: 1, unknown: 2, warn: 3, bad: 4 };

export const stateName = (s) => words[s] || 'Unknown';

// worst returns the worst of some states.
export const worst = (states) => states.reduce((a, b) => (rank[b] > rank[a] ? b : a), 'ok');

const condition = (o, type) => (o.status?.conditions || []).find((c) => c.type === type);
const result = (state, text) => ({ state, text: text || words[state] });

// ofPodStatus reads the words of the column Status of Pods.
export function ofPodStatus(status, ready = '') {
  if (/^(Running)$/.test(status)) {
    const [a, b] = String(ready).split('/');
    return !ready || a === b ? 'ok' : 'warn';
  }
  if (/^(Completed|Succeeded)$/.test(status)) return 'idle';
  if (/^(Pending|ContainerCreating|PodInitializing|SchedulingGated|Terminating|Init:\d+\/\d+|NotReady)$/.test(status)) return 'progress';
  if (!status || status === 'Unknown') return 'unknown';
  return 'bad';
}

// FAILED selects the Pods that have failed. The column Status of an evicted Pod may say Completed, because its containers were ended well.
export const FAILED = 'fieldSelector=' + encodeURIComponent('status.phase=Failed');

// podStatus returns the word that kubectl shows for a Pod.
export function podStatus(o) {
  const s = o.status || {};
  let word = s.reason || s.phase || 'Unknown';
  const waiting = (list, prefix) => {
    for (const c of list || []) {
      const w = c.state?.waiting?.reason || (c.state?.terminated && c.state.terminated.exitCode !== 0 ? c.state.terminated.reason || 'Error' : '');
      if (w && w !== 'PodInitializing') return prefix + w;
    }
    return '';
  };
  word = waiting(s.initContainerStatuses, 'Init:') || waiting(s.containerStatuses, '') || word;
  if (s.phase === 'Failed') word = s.reason || word; // whatever its containers said when they were ended
  if (o.metadata?.deletionTimestamp) word = 'Terminating';
  return word;
}

const DOWN = 60000; // milliseconds after which a workload without a ready Pod is down

// isDown says that a workload that is not new has no ready Pod.
export const isDown = (have, want, created) => have === 0 && want > 0 && Date.now() - Date.parse(created) > DOWN;

const replicas = (o, have, want) => {
  if (want === 0) return result('idle', 'Scaled to 0');
  if (have >= want) return result('ok', `${have}/${want} ready`);
  if (isDown(have, want, o.metadata?.creationTimestamp)) return result('bad', `${have}/${want} ready`);
  return result('progress', `${have}/${want} ready`);
};

// rules has one function for each kind that says more than its conditions.
const rules = {
  Pod(o) {
    const s = o.status || {};
    const word = podStatus(o);
    const ready = (s.containerStatuses || []).filter((c) => c.ready).length + '/' + (o.spec?.containers || []).length;
    if (s.phase === 'Pending' && condition(o, 'PodScheduled')?.status === 'False') return result('warn', 'Unschedulable');
    return result(ofPodStatus(word, word === 'Running' ? ready : ''), word + (word === 'Running' ? ` ${ready}` : ''));
  },
  Deployment(o) {
    const s = o.status || {};
    const p = condition(o, 'Progressing');
    if (p?.reason === 'ProgressDeadlineExceeded') return result('bad', 'Rollout is stuck');
    if (condition(o, 'ReplicaFailure')?.status === 'True') return result('bad', 'Pods are refused');
    const want = o.spec?.replicas ?? 1;
    if ((s.observedGeneration || 0) < (o.metadata?.generation || 0)) return result('progress', 'Not seen yet');
    if ((s.updatedReplicas || 0) < want) return result('progress', `${s.updatedReplicas || 0}/${want} updated`);
    return replicas(o, s.availableReplicas || 0, want);
  },
  ReplicaSet(o) { return replicas(o, o.status?.readyReplicas || 0, o.spec?.replicas ?? 1); },
  ReplicationController(o) { return replicas(o, o.status?.readyReplicas || 0, o.spec?.replicas ?? 1); },
  StatefulSet(o) { return replicas(o, o.status?.readyReplicas || 0, o.spec?.replicas ?? 1); },
  DaemonSet(o) { return replicas(o, o.status?.numberReady || 0, o.status?.desiredNumberScheduled || 0); },
  Job(o) {
    if (condition(o, 'Failed')?.status === 'True') return result('bad', 'Failed');
    if (condition(o, 'Complete')?.status === 'True') return result('idle', 'Complete');
    if (o.spec?.suspend) return result('idle', 'Suspended');
    return result('progress', `${o.status?.succeeded || 0}/${o.spec?.completions ?? 1} done`);
  },
  CronJob(o) { return o.spec?.suspend ? result('idle', 'Suspended') : result('ok', 'Scheduled'); },
  Node(o) {
    const ready = condition(o, 'Ready')?.status;
    if (ready !== 'True') return result('bad', ready === 'Unknown' ? 'NotReady, not heard of' : 'NotReady');
    const fault = (o.status?.conditions || []).find((c) => /Pressure$|^NetworkUnavailable$/.test(c.type) && c.status === 'True');
    if (fault) return result('bad', fault.type);
    return o.spec?.unschedulable ? result('warn', 'Cordoned') : result('ok', 'Ready');
  },
  PersistentVolumeClaim(o) {
    const p = o.status?.phase;
    return p === 'Bound' ? result('ok', p) : p === 'Lost' ? result('bad', p) : result('progress', p);
  },
  PersistentVolume(o) {
    const p = o.status?.phase;
    return p === 'Bound' || p === 'Available' ? result('ok', p) : p === 'Failed' ? result('bad', p) : result('idle', p);
  },
  Namespace(o) { return o.status?.phase === 'Terminating' ? result('progress', 'Terminating') : result('ok', 'Active'); },
};

// healthOf says how an object does, with a word for people.
export function healthOf(o) {
  if (!o) return result('unknown');
  if (o.metadata?.deletionTimestamp && o.kind !== 'Pod') return result('progress', 'Terminating');
  const rule = rules[o.kind];
  if (rule) return rule(o);
  for (const type of ['Ready', 'Available', 'Established', 'Accepted', 'Succeeded']) {
    const c = condition(o, type);
    if (c) return c.status === 'True' ? result('ok', type) : result(c.status === 'False' ? 'warn' : 'progress', c.reason || 'Not ' + type);
  }
  return o.status === undefined ? result('ok', 'Exists') : result('unknown', 'No condition');
}

// hasHealth says that a kind has a state worth showing.
export const hasHealth = (o) => Boolean(rules[o.kind] || o.status?.conditions?.length);
