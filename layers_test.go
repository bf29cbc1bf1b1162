// Package proa holds no code. Its tests are the rules of the house: who may import whom and why, what every package says
// about itself, and how long things may get. They read the files themselves, so that the test cache notices every change.
package proa

import (
	"go/ast"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "proa.dev"

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
	{"errs", "", "errors cross every border, so they may know no side of it"},
	{"kv", "", "these words stand between the store and its readers, and belong to neither"},

	{"kinds/check", "", "checks are functions on values"},
	{"kinds/kind", "kv errs", "a descriptor is data; who acts on it is not its business"},
	{"kinds/kind/kindtest", "kinds", "it runs descriptors without a server"},
	{"kinds/quantity", "", "bounds of quantities, for whoever reads one"},
	{"kinds/codec", "kinds/kind kinds/quantity kv errs", "bytes and objects, nothing else"},
	{"kinds/gr", "", "names of resources, for whoever speaks of them"},
	{"kinds/stream", "", "options are values, for the API and for nodes"},
	{"kinds/nodeaddress", "", "which addresses and names nodes may have, for the server, the approver and the network"},
	{"kinds/nodejoin", "kinds/nodeaddress", "how nodes join, for the server, the approver and the command line"},
	{"kinds/period", "", "seconds of objects are times, for whoever counts them"},
	{"kinds/*", "kinds/kind kinds/check kinds/core kinds/gr kinds/period kinds/quantity kinds/stream errs", "a kind is declared, not wired; pod templates of core are part of other kinds"},
	{"kinds", "kinds kv errs", "the table names every kind"},

	{"client", "kinds hop errs kv", "hop 1 must work the same in another process, where there is no server to import"},
	{"server/authn/issuer", "server/expressions", "tokens of others are verified without knowing who asks"},
	{"server/authz/order", "server/expressions", "it reads a file, and makes nothing of it"},
	{"client/*", "client kinds hop errs kv", "it takes the place of the server in another process, and tests what both promise"},
	{"server/authz/bootstrap", "kinds errs", "the first roles are data"},
	{"server/objectversion", ". server/match kinds", "which kind a subresource takes is decided where rules are matched"},
	{"server/policyadmission", ". server/expressions server/match server/objectversion kinds hop errs kv", "policies see the writes that webhooks see, and in the same way"},
	{"server/webhook", ". server/expressions server/match server/objectversion server/extension kinds hop errs kv", "webhooks are asked by the ways of extension about the writes that match names"},
	{"server/aggregate", ". server/discovery server/extension kinds hop errs kv", "requests leave for other servers by the ways of extension, and discovery shows them"},
	{"server/definitions/describe", "server/openapi", "definitions are described in the words of openapi, which knows no definition"},
	{"server/custom", ". server/expressions kinds hop errs kv", "rules of definitions are expressions"},
	{"server/definitions", ". server/expressions kinds hop errs kv", "rules of definitions are expressions"},
	{"server/expressions", "kinds/quantity", "the words of CEL, for whoever compiles it"},
	{"server/devices", ". server/expressions kinds hop errs kv", "it compiles the expressions that select devices"},
	{"server/policies", ". server/expressions kinds hop errs kv", "it compiles expressions to say whether they are right"},
	{"server/*", ". kinds hop errs kv", "hops 2 to 6 never import each other: server/path.go alone shows their order"},
	{"server", "server store watch client kinds hop errs kv", "the one place where hops 2 to 8 are composed"},
	{"store/storetest", "kv errs", "the promises of a store are those of kv"},
	{"store/kms/kmstest", "", "it takes the place of a service that keeps keys; only tests import it"},
	{"store/kms", "store/encryption errs", "it speaks to plugins that keep keys, and knows of the store only what encrypts its values"},
	{"store/encryption", "kv errs", "it wraps any store, so it may know none"},
	{"store/memory", "kv", "it takes the place of etcd, so it knows as little"},
	{"store/solo", "", "a member of etcd holds keys and values, and knows not even the words of kv"},
	{"store/etcdtest", "", "it starts etcd's own server; only tests import it"},
	{"store", "store/solo store/storetest kv hop errs", "hop 7 stores bytes; it knows neither kinds nor requests"},
	{"watch", "kinds kv hop errs", "hop 8 is fed by the words of kv, from whatever store"},

	{"internal/textcase", "", "it reads texts for tests, and knows nothing of what they are about"},
	{"control", "client kinds hop errs kv", "from hop 9 on a part is a client among others, with no side door"},
	{"control/controltest", "internal/textcase proatest run control client kinds hop errs kv", "it plays scripts on a whole cluster; only tests import it"},
	{"control/*", "control client kinds hop errs kv", "controllers never call each other; they meet in the objects"},
	{"schedule", ". client kinds hop errs kv", "from hop 9 on a part is a client among others, with no side door"},
	{"schedule/*", "kinds errs kv", "what it works things out with knows neither queue nor cluster"},
	{"node", ". client kinds hop errs kv", "from hop 9 on a part is a client among others, with no side door"},
	{"node/simulate", "control client kinds hop errs kv", "simulated nodes are loops, and use the engine of loops"},
	{"node/clustertest", "proatest client kinds", "it gives tests of a node a cluster; only tests import it"},
	{"node/*", "node client kinds hop errs kv", "from hop 9 on a part is a client among others, with no side door"},
	{"node/volume/*", "node kinds errs", "what volumes are made with knows no cluster"},
	{"network", ". client kinds hop errs kv", "from hop 9 on a part is a client among others, with no side door"},
	{"network/*", "network client kinds hop errs kv", "from hop 9 on a part is a client among others, with no side door"},
	{"trace", "client kinds hop errs kv", "queries see what any client sees"},
	{"why", "trace client kinds hop errs kv", "queries see what any client sees"},

	{"run/pki", "errs", "keys and files, usable without a server"},
	{"run/machine", "run client node network kinds hop errs kv", "nodes and the door for Ingresses live beside a control plane, which must do without them"},
	{"run", "run/pki server store watch client control schedule node/simulate node/topology node/shutdown parts/carry kinds hop errs kv", "process life puts the parts together; what runs containers and moves traffic comes by the hook Machine"},
	{"proatest/manifest", "", "it reads files"},
	{"proatest/assets", "run", "it is a control plane under the names of other programs"},
	{"proatest/envtest", "proatest run", "it starts what proatest starts, under the names of another library"},
	{"proatest", "proatest/manifest run client kinds hop errs kv", "a test gets the same cluster that a process runs"},
	{"cli", ". run client kinds hop errs trace why ui node/check", "commands are users of the system, not parts of it"},
	{"ui", "client kinds hop errs trace why", "the page is a client"},
	{"cmd/proa-cni", "network/cni", "it is started for every Pod and must stay small"},
	{"parts", "", "it builds programs, and is no part of them"},
	{"parts/carry", "", "a release unpacks with it what it was packed with"},
	{"parts/*", "parts", "it builds programs, and is no part of them"},
	{"cmd/*", "cli node", "a main function calls one thing"},
	{"test/upstream", "parts test/ports", "it builds programs as parts are built"},
	{"test/bench", "test/bench/attack test/bench/ground test/lab test/upstream", "what tests the product from outside must not reach inside"},
	{"test/bench/attack", "test/upstream", "an attacker sees what everybody sees of the server: its address"},
	{"test/bench/definitions", "test/upstream", "what tests the product from outside must not reach inside"},
	{"test/bench/edge", "client network/service network/dns network/ingress kinds", "it is the last hop alone, as an agent runs it"},
	{"test/bench/ground", "node/runtime node/cri node/cgroup node/volume/mounts network/pod", "agents of others are measured on the runtime and the network that ours uses"},
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

func allowed(l layer, folder, target string) bool {
	for _, name := range strings.Fields(l.may) {
		if name == "." {
			name = folder
		}
		if target == name || strings.HasPrefix(target, name+"/") {
			return true
		}
	}
	return false
}

// TestNobodyImportsTheCommandLine holds for tests too.
func TestNobodyImportsTheCommandLine(t *testing.T) {
	for _, f := range sources(t) {
		if slices.Contains(f.imports(), module+"/cli") && f.folder != "cmd/proa" {
			t.Errorf("%s imports cli; what it needs belongs into a package of its own", f.name)
		}
	}
}

// TestProatestIsAControlPlane holds that a test which runs a whole cluster compiles and links nothing that runs containers or
// touches the network of the machine, by whatever way.
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
		for _, outside := range []string{"network", "node/runtime", "node/container", "node/volume", "node/netns", "node/serve", "run/machine", "cli"} {
			if under(folder, outside) || folder == "node" {
				t.Errorf("proatest links %s, by %s: what a test does not need belongs behind run.Machine", folder, importer)
			}
		}
	}
	if len(by) < 20 {
		t.Errorf("only %d packages were found: the search is broken", len(by))
	}
}

// wall keeps a library inside the folders that need it.
type wall struct {
	library string // a path, and what is below it
	only    string
	why     string
}

var walls = []wall{
	{"go.etcd.io", "store", "only the store talks to etcd"},
	{"k8s.io/klog", "run", "libraries log through it, and run leads their words to log/slog, which everything else uses"},
	{"go.uber.org/zap", "store", "etcd logs with it; everything else uses log/slog"},
	{"google.golang.org/grpc", "store node/cri node/runtime node/probe node/device node/dra node/csi node/plugin", "etcd, container runtimes, gRPC probes and the plugins of devices speak it, nobody else"},
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
	{"golang.org/x/net/websocket", "server node", "sockets end where HTTP ends"},
	{"go.yaml.in/yaml/v3", "run cli", "only files that people write need lines and comments; sigs.k8s.io/yaml is for objects"},
	{"net/http", "run server client cli node network proatest test ui kinds/kind/kindtest", "the pipeline is not HTTP: kinds, store, watch and loops know nothing of it"},
	{"os/exec", "cli node network cmd test parts", "the control plane starts no programs"},
	{"k8s.io/client-go/rest", "run client proatest test node", "callers use package client"},
	{"k8s.io/client-go/tools", "run client proatest test node", "callers use package client; there is one cache"},
	{"k8s.io/client-go/dynamic", "test", "callers use package client"},
}

// banned libraries may not be imported anywhere in the product, except in the one folder that is named.
var banned = []wall{
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

func TestWalls(t *testing.T) {
	for _, f := range sources(t) {
		for _, imported := range f.imports() {
			for _, w := range banned {
				if under(imported, w.library) && !f.test && !under(f.folder, "test") && f.folder != w.only {
					t.Errorf("%s imports %s, which the product may not: %s", f.name, imported, w.why)
				}
			}
			for _, w := range walls {
				inside := slices.ContainsFunc(strings.Fields(w.only), func(only string) bool { return under(f.folder, only) })
				if under(imported, w.library) && !inside && !f.test {
					t.Errorf("%s imports %s, which only %s may: %s", f.name, imported, w.only, w.why)
				}
			}
		}
	}
}

// under tells whether a path is the tree or in it. Of the standard library each package counts for itself.
func under(path, tree string) bool {
	if path == tree {
		return true
	}
	first, _, _ := strings.Cut(tree, "/")
	standard := slices.Contains([]string{"log", "math", "net", "os"}, first)
	return !standard && strings.HasPrefix(path, tree+"/")
}

// hops are the twelve folders of the way from a client to traffic.
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

// nobodysContext are the files that may make a context, with the reason.
var nobodysContext = map[string]string{
	"store/log.go":                 "a log line of etcd has no caller",
	"proatest/assets/main.go":      "it is where a process begins",
	"proatest/envtest/requests.go": "the functions of envtest take no context",
}

func TestContexts(t *testing.T) {
	for _, f := range sources(t) {
		if f.test || nobodysContext[f.name] != "" || under(f.folder, "cmd") || under(f.folder, "cli") || under(f.folder, "run") || under(f.folder, "test") || under(f.folder, "parts") {
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
