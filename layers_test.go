// Package proa has no code. Its tests check rules for the source: which package may import which and why, package comments, and
// the length of files and functions. They read the files themselves, so that the test cache notices every change.
package proa

import (
	"go/ast"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "proa.dev"

// leaves are the packages that every other one may import.
const leaves = "internal/buildinfo internal/connlimit internal/nativehistogram internal/printable internal/wait"

// layer says what the packages of a folder may import of this module. A name covers the folders below it; "." is the
// folder itself with what is below.
type layer struct {
	folder string // as in path.Match
	may    string
	why    string
}

// layers are tried in order; the first that matches counts. A folder that none matches is an error: say where it belongs.
var layers = []layer{
	{"hop", "", "every part records its hop, so hop may need none of them"},
	{"internal/wait", "", "every loop waits, so it may need none of them"},
	{"internal/buildinfo", "", "every part may say which build it is, so it may need none of them"},
	{"internal/connlimit", "", "every part may listen, so it may need none of them"},
	{"internal/nativehistogram", "", "every part counts, so it may need none of them"},
	{"internal/printable", "", "whoever shows texts of others needs it, on the server and in a terminal"},
	{"trace/waterfall", "trace hop", "it prints traces, and reads nothing"},
	{"trace/chrometrace", "trace hop", "it writes traces in the form of another program"},
	{"trace", "hop", "a trace is made of records alone, by the server and by whoever reads them"},
	{"trace/otlp/otlptest", "", "it reads what is exported as anybody would; only tests import it"},
	{"trace/otlp", "trace hop", "an export is made of traces and records; who runs it says where it goes"},
	{"kv", "", "these words stand between the store and its readers, and belong to neither"},

	{"kinds/kind", "hop kv", "a descriptor is data; who acts on it is not its business"},
	{"kinds/kind/kindtest", "kinds", "it runs descriptors without a server"},
	{"kinds/lib/codec", "kinds/kind kinds/lib/quantity kv", "bytes and objects, nothing else"},
	{"kinds/lib/nodejoin", "kinds/lib/nodeaddress", "how nodes join, for the server, the approver and the command line"},
	{"kinds/lib/quotausage", "kinds/kind kinds/lib kinds/core", "what objects count for in a quota is worked out from the objects alone"},
	{"kinds/nodereport", "kinds/kind hop", "a report carries records of hops, from agents to the server"},
	{"kinds/lib/*", "kinds/lib/check kinds/lib/gr kinds/lib/quantity", "helpers are functions on values, for kinds and for whoever reads them"},
	{"kinds/core/*", "kinds/kind kinds/core kinds/lib", "a kind is declared, not wired; the rules of pods, volumes and containers build on each other"},
	{"kinds/tracekind", "kinds/kind trace", "the form of a trace is shared with whoever reads it"},
	{"kinds/whykind", "kinds/kind trace why", "an explanation has the same form on the server and on the command line"},
	{"kinds/*", "kinds/kind kinds/core kinds/lib", "a kind is declared, not wired; pod templates of core are part of other kinds"},
	{"kinds", "kinds kv trace why", "the table names every kind"},

	{"client", "kinds hop kv", "hop 1 must work the same in another process, where there is no server to import"},
	{"server/authn/issuer", "server/celenv", "tokens of others are verified without knowing who asks"},
	{"server/authz/authzconfig", "server/celenv", "it reads a file, and makes nothing of it"},
	{"client/apireader", "", "it reads from any cluster, as kubectl does"},
	{"client/*", "client kinds hop kv", "it takes the place of the server in another process, and tests what both promise"},
	{"server/authz/bootstrappolicy", "kinds", "the first roles are data"},
	{"server/registrations", "kinds", "it caches what plugins build from their configuration, and knows no plugin"},
	{"server/packagedata", "", "it reads embedded files, and does not know what is in them"},
	{"server/schema", ". server/packagedata kinds hop kv", "the types of fields are embedded data"},
	{"server/openapi", ". server/packagedata kinds hop kv", "the schemas of built-in types are embedded data"},
	{"server/objectversion", ". server/admissionmatch kinds", "which kind a subresource takes is decided where rules are matched"},
	{"server/policyadmission", ". server/registrations server/celenv server/admissionmatch server/objectversion kinds hop kv", "policies see the writes that webhooks see, and in the same way"},
	{"server/webhook", ". server/registrations server/celenv server/admissionmatch server/objectversion server/extensionclient kinds hop kv", "webhooks are asked by the ways of extension about the writes that match names"},
	{"server/aggregation", ". server/apidiscovery server/extensionclient kinds hop kv", "requests leave for other servers by the ways of extension, and discovery shows them"},
	{"server/traceopenapi", "server/openapi kinds trace", "traces are described in the words of openapi, which knows no kind by name"},
	{"server/crdopenapi", "server/openapi", "definitions are described in the words of openapi, which knows no definition"},
	{"server/customresource", ". server/celenv kinds hop kv", "rules of definitions are expressions"},
	{"server/crdvalidation", ". server/celenv kinds hop kv", "rules of definitions are expressions"},
	{"server/celenv", "kinds/lib/quantity", "the words of CEL, for whoever compiles it"},
	{"server/deviceselector", ". server/celenv kinds hop kv", "it compiles the expressions that select devices"},
	{"server/policyexpressions", ". server/celenv kinds hop kv", "it compiles expressions to say whether they are right"},
	{"server/expirycache", "", "it caches values, and knows nothing of what they are about"},
	{"server/authn", ". server/expirycache kinds hop kv", "verified tokens and answers of webhooks are cached"},
	{"server/authz", ". server/expirycache kinds hop kv", "answers of webhooks are cached"},
	{"server/mutate", ". server/admissionlib kinds hop kv", "plugins of both admission hops share helpers"},
	{"server/validate", ". server/admissionlib kinds hop kv", "plugins of both admission hops share helpers"},
	{"server/h2/*", "", "the parts of HTTP/2 that know no connection"},
	{"server/openapi/openapiproto", "", "it encodes documents, and does not know what is in them"},
	{"server/nodereports", "server/authz server/state kinds hop", "who a node is, and which Pods are its own, is known there"},
	{"server/apistatus", "server/fairqueue watch kinds kv", "what the store, a cache or a full queue says becomes an error that clients know"},
	{"server/state", "server/apistatus server/customresource server/schema watch client kinds kv", "the state is read by every hop, so it may need none of them; field owners of custom resources are kept with these"},
	{"server/collection", "server/apistatus server/state server/fairqueue server/memorybudget watch kinds kv", "it reads lists for the pipeline, and knows no request"},
	{"server/decode", "server/apistatus kinds", "bodies are decoded without knowing what becomes of them"},
	{"server/deletion", "kinds", "what a deletion does to an object is worked out from the object alone"},
	{"server/fieldmanager", "server/schema server/state kinds", "managedFields are kept for built-in and custom resources alike"},
	{"server/computed", "server/collection watch kinds hop", "it watches what is not stored, in the words of those who watch what is"},
	{"server/requestflow", "server/apistatus server/state server/fairqueue watch kinds", "it tells fairqueue which flows the cluster has, for the pipeline and for HTTP"},
	{"server/coreadmission", "server/authz kinds", "plugins that need hop 3"},
	{"server/encode", "server kinds watch hop", "it writes what the pipeline answers, for both adapters, and what records keep of it"},
	{"server/localclient", "server client watch kinds hop kv", "the adapter between callers in this process and the pipeline"},
	{"server/initialobjects", "server/state server/authz/bootstrappolicy client kinds",
		"the first objects are created by a client among others"},
	{"server/apiendpoints", "client kinds kv", "a server keeps its lease in the store, which alone counts the time, and writes endpoints as a client among others"},
	{"server/responsewriter", "server/audit server/fairqueue server/memorybudget server/h2", "it sends answers, whatever they are"},
	{"server/negotiate", "server kinds", "it reads headers, and says what is wrong with them"},
	{"server/healthz", "server/state server/apidiscovery server/responsewriter", "health is answered without the pipeline"},
	{"server/httpapi", "server watch kinds hop", "the adapter between HTTP and the pipeline"},
	{"server/whysource", "server/authz kinds trace why hop", "it reads for explanations what their reader may read"},
	{"server/peerrecords", "client kinds trace why/answer hop", "servers find each other by Leases, and ask for what belongs to a trace"},
	{"server/tracesource", "server/authz server/peerrecords server/state kinds trace hop", "it makes traces of records, and asks what a reader may see"},
	{"server/watchdelivery", "watch kinds hop", "it records what watches have sent, and knows no request"},
	{"server/refusal", "server/apistatus kinds/lib/codec hop", "it reads errors, as clients see them, and bodies that nobody has decoded"},
	{"server/unreadbody", "server/deadline server/refusal kinds/lib/codec", "names are found in bodies in one place"},
	{"server/*", ". kinds hop kv", "hops 2 to 6 never import each other: server/path.go alone shows their order"},
	{"server", "server/admissionchain server/apistatus server/audit server/authz server/collection server/computed server/decode server/deletion server/fairqueue server/fieldmanager server/keylock server/memorybudget server/objectmeta server/refusal server/requestflow server/schema server/state watch client kinds hop kv", "the one place where hops 2 to 8 are composed; it knows none of the adapters that call it"},
	{"store/storetest", "kv", "the promises of a store are those of kv"},
	{"store/kms/kmstest", "", "it takes the place of a service that keeps keys; only tests import it"},
	{"store/kms", "store/encryption", "it speaks to plugins that keep keys, and knows of the store only what encrypts its values"},
	{"store/encryption", "kv", "it wraps any store, so it may know none"},
	{"store/memory", "kv", "it takes the place of etcd, so it knows as little"},
	{"store/singlemember", ".", "a member of etcd holds keys and values, and knows not even the words of kv"},
	{"store/singlemember/memberdb", "store/singlemember/memberlog", "whether the database is complete depends on the log"},
	{"store/singlemember/datarepair", "store/singlemember/memberlog store/singlemember/memberdb",
		"data is repaired without a running member"},
	{"store/singlemember/*", "", "the log and the disk space of a member are used by the member, not the other way round"},
	{"store/etcdtest", "", "it starts etcd's own server; only tests import it"},
	{"store", "store/singlemember store/storetest kv hop", "hop 7 stores bytes; it knows neither kinds nor requests"},
	{"watch", "kinds kv hop", "hop 8 is fed by the words of kv, from whatever store"},

	{"internal/textcase", "", "it reads texts for tests, and knows nothing of what they are about"},
	{"control", "client kinds hop kv", "from hop 9 on a part is a client among others, with no side door"},
	{"control/controltest", "internal/textcase proatest run control client kinds hop kv",
		"it plays scripts on a whole cluster; only tests import it"},
	{"control/lib/*", "control client kinds hop kv", "what several controllers share"},
	{"control/cloud/*", "control client kinds hop kv", "the providers of the cloud controllers"},
	{"control/*", "control client kinds hop kv", "controllers never call each other; they meet in the objects"},
	{"schedule", ". client kinds hop kv", "from hop 9 on a part is a client among others, with no side door"},
	{"schedule/deviceallocator", "kinds kv", "devices are allocated from values alone"},
	{"schedule/eventseries", "client kinds", "it writes Events, and knows nothing of the scheduler"},
	{"schedule/framework", "schedule/deviceallocator schedule/eventseries client kinds",
		"plugins and engine share it, so it knows neither of them"},
	{"schedule/waitrecord", "hop", "it records that Pods wait, and knows not what for"},
	{"schedule/framework/frameworktest", "schedule/framework kinds", "it is a cluster in memory; only tests import it"},
	{"schedule/podqueue", "schedule/framework kinds", "the queue knows hints, not the plugins that give them"},
	{"schedule/plugins", ". schedule/framework", "the registry names every plugin"},
	{"schedule/plugins/*", "schedule/framework schedule/deviceallocator schedule/eventseries client kinds", "plugins never import each other or the engine"},
	{"node", ". client kinds hop kv", "from hop 9 on a part is a client among others, with no side door"},
	{"node/simulate", "control client kinds hop kv", "simulated nodes are controllers, and use their engine"},
	{"node/clustertest", "proatest client kinds node/event", "it gives tests of a node a cluster; only tests import it"},
	{"node/*", "node client kinds hop kv", "from hop 9 on a part is a client among others, with no side door"},
	{"node/volume/*", "node kinds", "what volumes are made with knows no cluster"},
	{"network", ". client kinds hop kv", "from hop 9 on a part is a client among others, with no side door"},
	{"network/*", "network client kinds hop kv", "from hop 9 on a part is a client among others, with no side door"},

	{"ui", "", "the page is static files; what it shows comes from the API"},
	{"why", "why/answer why/containers why/lookup why/messages why/metadata why/refusedwrite why/servicetrace why/traffic kinds/lib trace hop", "explanations see what any client sees"},
	{"why/answer", "hop", "an answer is data, for those who make it and those who show it"},
	{"why/containers", "why/answer why/lookup why/messages kinds/lib hop", "it explains a part of a Pod, and knows no other kind"},
	{"why/metadata", "why/answer hop", "it explains what objects of all kinds have, and reads none"},
	{"why/refusedwrite", "why/answer why/messages trace hop", "it reads traces, and nothing else"},
	{"why/servicetrace", "why/answer trace hop", "it reads traces, and nothing else"},
	{"why/traffic", "why/answer why/lookup why/metadata kinds/lib hop", "it explains what is in front of Services, and is given what explains them"},
	{"why/lookup", "why/messages kinds/lib", "it reads what any client sees, and explains nothing"},
	{"why/messages", "hop", "it reads texts, and no objects"},
	{"why/report", "why", "it prints answers, and reads nothing"},

	{"run/controllerlease", "control", "it chooses by the names of controllers"},
	{"run/pki", "", "keys and files, usable without a server"},
	{"run/credentials", "", "kubeconfigs and tokens are read before there is a server"},
	{"run/goprocess", "", "it is about the Go process, whatever runs in it"},
	{"run/filewatch", "", "it reads files, and knows not what is in them"},
	{"run/hostaddress", "", "it is about the addresses of the machine, whatever listens there"},
	{"run/parthealth", "", "whatever has parts can track and restart them"},
	{"run/recordfile", "hop", "it reads and writes records, and makes nothing of them"},
	{"run/clusterrecord", "run/datafolder kv", "it compares fingerprints and settings, and does not know where they come from"},
	{"run/datafolder", "store parts/bundle", "commands look at a data folder while no server runs; only the files of the store need the store"},
	{"run/webhookclient", "run/credentials server/customresource server/extensionclient", "it sends what hops and the scheduler hand to it, and knows none of them"},
	{"run/admissionplugins", "server kinds", "the order of plugins is one list, and settings choose from it"},
	{"run/settings", "run/admissionplugins run/credentials run/datafolder run/webhookclient server control node/topology node/shutdown trace/otlp kinds", "a value of a setting is checked by the part that uses it, before anything starts"},
	{"run/access", "run/settings run/webhookclient server", "it builds hops 2 and 3 from settings"},
	{"run/storeencryption", "server store kinds kv", "it stands between the pipeline and the store"},
	{"run/bootstraproles", "control server client kinds trace", "roles are made from what controllers declare"},
	{"run/aggregatedresources", "server/aggregation client control kinds", "controllers reach other API servers through the aggregator, by the methods of client"},
	{"run/servedresources", "kinds", "it chooses from descriptors, whoever serves them"},
	{"run/openapisource", "server kinds", "descriptors and definitions are described in the words of openapi"},
	{"run/autoscalermetrics", "run/aggregatedresources server control/podautoscaler kinds", "a controller reads metrics of this server and of others with its own rights"},
	{"run/schedulingattempts", "schedule server/peerrecords why", "what the scheduler keeps is told in the words of why, and neither knows the other"},
	{"run/machine/nodefolder", "run/settings run/datafolder run/hostaddress network node", "folders and names of nodes are worked out from settings, while nothing runs"},
	{"run/machine/teardown", "run/machine/nodefolder run/settings run/datafolder network node",
		"what a cluster has made is removed without a server"},
	{"run/machine/nodeimages", "run/machine/nodefolder run/datafolder node", "images are brought to runtimes without a server"},
	{"run/machine/agentjoin", "run/machine/nodefolder run/settings run/credentials run/hostaddress run/parthealth client node kinds", "an agent joins a server of another process, or of another Kubernetes"},
	{"run/machine", "run client node network kinds hop kv", "nodes and the proxy for Ingresses live beside a control plane, which must do without them"},
	{"run", "run/clusterrecord run/datafolder run/pki run/controllerlease run/filewatch run/goprocess run/hostaddress run/parthealth run/webhookclient run/admissionplugins run/settings run/access run/storeencryption run/bootstraproles run/aggregatedresources run/servedresources run/openapisource run/autoscalermetrics run/schedulingattempts run/recordfile server store watch client control schedule node/simulate ui kinds trace why hop kv", "process life puts the parts together; what runs containers and moves traffic comes by the hook Machine"},
	{"proatest/manifest", "", "it reads files"},
	{"proatest/assets", "run", "it is a control plane under the names of other programs"},
	{"proatest/envtest", "proatest run", "it starts what proatest starts, under the names of another library"},
	{"proatest", "proatest/manifest run client kinds hop kv", "a test gets the same cluster that a process runs"},
	{"cli/command", "run/settings", "the framework knows no command, and of the system only that settings are flags"},
	{"cli/userkubeconfig", "cli/command", "it edits a file of the user"},
	{"cli/credentialplugin", "client/apireader", "it runs a program of the user"},
	{"cli/localcluster", "cli/command run", "it knows a cluster by its data folder"},
	{"cli/clusterstatus", "cli/command cli/localcluster run kinds why/answer", "it asks a running cluster, as users do"},
	{"cli/lifecycle", "cli/command cli/localcluster cli/userkubeconfig run node/preflight kinds", "it starts and stops clusters"},
	{"cli/dashboardproxy", "ui", "it passes requests of a browser on, whoever answers them"},
	{"cli", ". run client kinds hop why trace ui", "commands are users of the system, not parts of it"},
	{"cmd/proa-cni", "network/cni", "it is started for every Pod and must stay small"},
	{"parts", "", "it builds programs, and is no part of them"},
	{"parts/bundle", "", "a release unpacks with it what it was packed with"},
	{"parts/*", "parts", "it builds programs, and is no part of them"},
	{"cmd/*", "cli node", "a main function calls one thing"},
	{"test/upstream", "parts test/ports", "it builds programs as parts are built"},
	{"test/bench", "test/bench/attack test/bench/benchrun test/bench/nodebench test/bench/trafficbench test/bench/extendbench test/upstream", "what tests the product from outside must not reach inside"},
	{"test/bench/benchrun", "test/upstream", "what tests the product from outside must not reach inside"},
	{"test/bench/nodebench", "test/bench/benchrun test/bench/ground test/upstream",
		"agents are measured on the runtime and the network that ours uses"},
	{"test/bench/trafficbench", "test/bench/benchrun test/lab test/upstream", "what tests the product from outside must not reach inside"},
	{"test/bench/extendbench", "test/bench/benchrun test/upstream", "what tests the product from outside must not reach inside"},
	{"test/bench/attack", "test/upstream", "an attacker sees what everybody sees of the server: its address"},
	{"test/bench/definitions", "test/upstream", "what tests the product from outside must not reach inside"},
	{"test/bench/edge", "client network/service network/dns network/ingress kinds", "it is the last hop alone, as an agent runs it"},
	{"test/bench/ground", "node/runtime node/cri node/cgroup node/volume/mounts network/podnetwork", "agents of others are measured on the runtime and the network that ours uses"},
	{"test/compat/answerdiff", "", "it compares values, whoever has answered them"},
	{"test/compat/compatcases", "test/compat/answerdiff test/upstream kinds", "what tests the product from outside must not reach inside"},
	{"test/compat", "test/compat/answerdiff test/compat/compatcases test/upstream kinds",
		"what tests the product from outside must not reach inside"},
	{"test/lab", "", "namespaces for whoever tests with them"},
	{"test/chaos/*", "test/chaos test/images test/ports test/upstream", "it plays the part of an operator of the product"},
	{"test/operators/*", "parts test/upstream", "it runs suites of others, which know nothing of the product"},
	{"test/*", "test/upstream test/images test/ports test/registry test/lab kinds proatest", "what tests the product from outside must not reach inside"},
	{"test/upstream/*", "test/upstream", "what tests the product from outside must not reach inside"},
	{"test/images/tool", "", "a program in an image stands alone"},
	{"test/images/*", "test/images test/upstream", "images are made of what is pinned, and know nothing of the product"},
}

func TestLayers(t *testing.T) {
	for _, f := range sources(t) {
		at := slices.IndexFunc(layers, func(l layer) bool { ok, _ := path.Match(l.folder, f.folder); return ok })
		if f.folder == "." || f.test {
			continue
		}
		if at < 0 {
			t.Errorf("%s: the folder %s has no layer; say in layers_test.go what it may import, and why", f.name, f.folder)
			continue
		}
		l := layers[at]
		for _, imported := range f.imports() {
			target, ok := strings.CutPrefix(imported, module+"/")
			if ok && !allowed(l, f.folder, target) {
				t.Errorf("%s imports %s; %s may import only: %s (%s)", f.name, target, l.folder, l.may, l.why)
			}
		}
	}
}

// TestLayersExist checks that the layers name folders that exist, so that a rule is never about nothing.
func TestLayersExist(t *testing.T) {
	folders := map[string]bool{}
	for _, f := range sources(t) {
		for dir := f.folder; dir != "."; dir = path.Dir(dir) {
			folders[dir] = true
		}
	}
	for _, l := range layers {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(folders)),
			func(dir string) bool { ok, _ := path.Match(l.folder, dir); return ok }) {
			t.Errorf("there is no folder %s; take its layer out", l.folder)
		}
		for _, name := range strings.Fields(l.may) {
			if name != "." && !folders[name] {
				t.Errorf("%s may import %s, which does not exist", l.folder, name)
			}
		}
	}
}

func allowed(l layer, folder, target string) bool {
	for _, name := range strings.Fields(l.may + " " + leaves) {
		if name == "." {
			name = folder
		}
		if target == name || strings.HasPrefix(target, name+"/") {
			return true
		}
	}
	return false
}

// TestNothingImportsCLI checks that only cmd/proa imports cli; tests may not import it either.
func TestNothingImportsCLI(t *testing.T) {
	for _, f := range sources(t) {
		if slices.Contains(f.imports(), module+"/cli") && f.folder != "cmd/proa" {
			t.Errorf("%s imports cli; what it needs belongs into a package of its own", f.name)
		}
	}
}

// TestProatestIsAControlPlane checks that proatest imports, directly or indirectly, no package that runs containers or changes the
// network of the machine.
func TestProatestIsAControlPlane(t *testing.T) {
	imports := map[string][]string{}
	for _, f := range sources(t) {
		if !f.test {
			imports[f.folder] = append(imports[f.folder], f.imports()...)
		}
	}
	by := map[string]string{"proatest": "a test"}
	for next := []string{"proatest"}; len(next) > 0; {
		folder := next[0]
		next = next[1:]
		for _, imported := range imports[folder] {
			target, ok := strings.CutPrefix(imported, module+"/")
			if _, seen := by[target]; ok && !seen {
				by[target], next = folder, append(next, target)
			}
		}
	}
	for folder, importer := range by {
		for _, outside := range []string{"network", "node/runtime", "node/container", "node/volume", "node/netns", "node/kubeletapi",
			"run/machine", "cli"} {
			if under(folder, outside) || folder == "node" {
				t.Errorf("proatest links %s, by %s: what a test does not need belongs behind run.Machine", folder, importer)
			}
		}
	}
	if len(by) < 20 {
		t.Errorf("only %d packages were found: the search is broken", len(by))
	}
}

// libraryRule restricts the imports of a library to the folders that need it.
type libraryRule struct {
	library string // a path, and what is below it
	only    string // folders with what is below them; with an exclamation mark, a folder among these that may not, without what is below it
	why     string
}

var libraryRules = []libraryRule{
	{"go.etcd.io", "store", "only the store talks to etcd"},
	{"k8s.io/klog", "run", "libraries log through it, and run leads their words to log/slog, which everything else uses"},
	{"go.uber.org/zap", "store", "etcd logs with it; everything else uses log/slog"},
	{"google.golang.org/grpc", "store node/cri node/runtime node/probe node/deviceplugin node/dra node/csi node/pluginregistration trace/otlp", "etcd, container runtimes, gRPC probes, the plugins of devices and receivers of OTLP speak it, nobody else"},
	{"github.com/container-storage-interface/spec", "node/csi", "storage drivers are behind one door"},
	{"k8s.io/cri-api", "node/cri", "the runtime is behind one door"},
	{"k8s.io/cri-client", "node/cri", "the runtime is behind one door"},
	{"github.com/vishvananda/netlink", "network cmd/proa-cni", "only the network touches interfaces"},
	{"sigs.k8s.io/knftables", "network", "only the network writes rules"},
	{"github.com/google/nftables", "network", "only the network writes rules"},
	{"github.com/mdlayher/netlink", "network", "only the network touches interfaces"},
	{"github.com/miekg/dns", "network", "only the network answers names"},
	{"github.com/google/cel-go", "server", "expressions are evaluated in the pipeline, nowhere else"},
	{"k8s.io/apiserver/pkg/cel", "server", "expressions are evaluated in the pipeline, nowhere else"},
	{"k8s.io/apiserver/pkg/admission/plugin/cel", "server", "expressions are evaluated in the pipeline, nowhere else"},
	{"k8s.io/dynamic-resource-allocation/cel", "server", "expressions are evaluated in the pipeline, nowhere else"},
	{"github.com/go-jose/go-jose", "server/authn", "tokens are made and read in one place"},
	{"golang.org/x/net/websocket", "server node cli/dashboardproxy", "sockets end where HTTP ends"},
	{"go.yaml.in/yaml/v3", "run cli", "only files that people write need lines and comments; sigs.k8s.io/yaml is for objects"},
	{"net/http", "!server !server/apistatus !server/state !server/collection !server/decode !server/deletion !server/fieldmanager !server/objectmeta !server/requestflow !server/keylock !server/coreadmission !server/encode !server/localclient !server/initialobjects !server/authz !server/mutate !server/schema !server/validate run server client cli node network proatest test ui trace/otlp kinds/kind/kindtest internal/connlimit", "the pipeline is not HTTP: server, kinds, store, watch and controllers know nothing of it"},
	{"os/exec", "cli node network cmd test parts", "the control plane starts no programs"},
	{"k8s.io/client-go/rest", "run client proatest test node", "callers use package client"},
	{"k8s.io/client-go/tools", "run client proatest test node", "callers use package client; there is one cache"},
	{"k8s.io/client-go/dynamic", "test", "callers use package client"},
}

// banned libraries may not be imported anywhere in the product, except in the one folder that is named.
var banned = []libraryRule{
	{"k8s.io/kubernetes", "", "proa is written from scratch"},
	{"k8s.io/apiserver/pkg/server", "", "the server is ours"},
	{"k8s.io/apiserver/pkg/endpoints/handlers", "", "the server is ours"},
	{"k8s.io/apiserver/pkg/endpoints/filters", "", "the server is ours"},
	{"k8s.io/apiserver/pkg/registry", "", "the server is ours"},
	{"k8s.io/apiserver/pkg/storage/etcd3", "", "the store is ours"},
	{"k8s.io/client-go/kubernetes", "proatest/envtest", "a clientset is thousands of methods for what one generic client does; envtest needs the Scheme that its users fill"},
	{"k8s.io/client-go/applyconfigurations", "", "300 packages, and a schema parsed at start"},
	{"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc", "", "clients of etcd's own server are served in tests only"},
	{"go.etcd.io/etcd/server/v3/embed", "", "it imports golang.org/x/net/trace, which costs the linker's dead-code elimination"},
	{"golang.org/x/net/trace", "", "html/template calls methods by name: the linker then keeps every method of the binary"},
	{"text/template", "", "it calls methods by name: the linker then keeps every method of the binary"},
	{"html/template", "", "it calls methods by name: the linker then keeps every method of the binary"},
	{"github.com/google/go-cmp", "", "it calls methods by name, and is replaced by a stub; compare with reflect.DeepEqual"},
	{"github.com/spf13/cobra", "", "package flag is enough"},
	{"log", "", "log with log/slog"},
	{"math/rand", "", "use math/rand/v2"},
	{"unsafe", "", "nothing here is worth it"},
	{"C", "", "the binary is static"},
}

func TestLibraryRules(t *testing.T) {
	for _, f := range sources(t) {
		for _, imported := range f.imports() {
			for _, w := range banned {
				if under(imported, w.library) && !f.test && !under(f.folder, "test") && f.folder != w.only {
					t.Errorf("%s imports %s, which the product may not: %s", f.name, imported, w.why)
				}
			}
			for _, w := range libraryRules {
				inside := slices.ContainsFunc(strings.Fields(w.only), func(only string) bool { return under(f.folder, only) })
				if under(imported, w.library) && (!inside || slices.Contains(strings.Fields(w.only), "!"+f.folder)) && !f.test {
					t.Errorf("%s imports %s, which only %s may: %s", f.name, imported, w.only, w.why)
				}
			}
		}
	}
}

// under reports whether a path is the tree or below it. Packages of the standard library do not include those below them.
func under(name, tree string) bool {
	if name == tree {
		return true
	}
	first, _, _ := strings.Cut(tree, "/")
	standard := slices.Contains([]string{"log", "math", "net", "os"}, first)
	return !standard && strings.HasPrefix(name, tree+"/")
}

// hops are the folders of the twelve hops from a client to network traffic.
var hops = map[string]string{
	"client": "1", "server/authn": "2", "server/authz": "3", "server/mutate": "4", "server/schema": "5", "server/validate": "6",
	"store": "7", "watch": "8", "control": "9", "schedule": "10", "node": "11", "network": "12",
}

func TestPackageComments(t *testing.T) {
	comments := map[string][]string{}
	seen := map[string]bool{}
	for _, f := range sources(t) {
		if f.test && f.folder != "." && f.folder != "test/e2e" {
			continue
		}
		seen[f.folder] = true
		if f.ast.Doc == nil {
			continue
		}
		text := f.ast.Doc.Text()
		comments[f.folder] = append(comments[f.folder], f.name)
		start := "Package " + f.ast.Name.Name + " "
		if f.ast.Name.Name == "main" {
			start = "Command " + path.Base(f.folder) + " "
		}
		if !strings.HasPrefix(text, start) {
			t.Errorf("%s: the package comment must begin %q", f.name, start)
		}
		if n := hops[f.folder]; n != "" && !strings.HasPrefix(text, start+"is hop "+n+" of 12") {
			t.Errorf("%s: the package comment must begin %q", f.name, start+"is hop "+n+" of 12")
		}
	}
	for folder := range seen {
		if n := len(comments[folder]); n != 1 {
			t.Errorf("package %s has %d package comments %v; one file says what it is and what it owns", folder, n, comments[folder])
		}
	}
}

func TestNoInit(t *testing.T) {
	for _, f := range sources(t) {
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s: no init(): what starts is called by run, in an order one can read", f.at(fn))
			}
		}
	}
}

// contextExceptions are the files that may call context.Background, with the reason.
var contextExceptions = map[string]string{
	"store/log.go":                 "a log line of etcd has no caller",
	"proatest/assets/main.go":      "it is where a process begins",
	"proatest/envtest/requests.go": "the functions of envtest take no context",
}

func TestContexts(t *testing.T) {
	for _, f := range sources(t) {
		if f.test || contextExceptions[f.name] != "" || under(f.folder, "cmd") || under(f.folder, "cli") || under(f.folder, "run") ||
			under(f.folder, "test") || under(f.folder, "parts") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := call.X.(*ast.Ident); ok && x.Name == "context" && (call.Sel.Name == "Background" || call.Sel.Name == "TODO") {
				t.Errorf("%s: context.%s: take the caller's context, so that everything can be stopped", f.at(n), call.Sel.Name)
			}
			return true
		})
	}
}

func TestAny(t *testing.T) {
	for _, f := range sources(t) {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if i, ok := n.(*ast.InterfaceType); ok && len(i.Methods.List) == 0 {
				t.Errorf("%s: write any", f.at(n))
			}
			return true
		})
	}
}
