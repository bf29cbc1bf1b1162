package authz

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Cluster is how the Node authorizer reads which objects belong to which node. The objects are shared and never changed
// here.
type Cluster interface {
	// Pods yields the pods whose spec.nodeName is the node.
	Pods(node string) iter.Seq[*corev1.Pod]
	// NodeOf returns the node that an object names in its spec.nodeName: for the resources pods, volumeattachments,
	// resourceslices and podcertificaterequests. It returns "" when the object does not exist or names no node.
	NodeOf(resource, namespace, name string) string
	Claim(namespace, name string) (*corev1.PersistentVolumeClaim, bool)
	Volume(name string) (*corev1.PersistentVolume, bool)
}

// Node is the authorizer of node agents. An agent may read exactly what the pods on its node refer to, and write only
// its own objects; admission narrows further what it may do with them. The relations are derived from the node's pods
// for each question: a node has few pods, and there is no second copy of the cluster's state that could fall behind.
type Node struct {
	cluster Cluster
	// rules is what all nodes may do, with kinds that need no relation.
	rules []rbacv1.PolicyRule
}

// NewNode returns the authorizer; rules are those of the ClusterRole system:node.
func NewNode(cluster Cluster, rules []rbacv1.PolicyRule) *Node {
	return &Node{cluster: cluster, rules: rules}
}

// NodeName returns the node whose agent a user is. A member of system:nodes whose name is just "system:node:" is a node
// with an unknown name.
func NodeName(u user.Info) (name string, isNode bool) {
	if u == nil {
		return "", false
	}
	name, ok := strings.CutPrefix(u.GetName(), "system:node:")
	if !ok || !contains(u.GetGroups(), user.NodesGroup) {
		return "", false
	}
	return name, true
}

// Authorize returns Allow or NoOpinion, and always NoOpinion for users that are not nodes.
func (n *Node) Authorize(_ context.Context, a Attributes) (Decision, string, error) {
	name, isNode := NodeName(a.User)
	if !isNode {
		return NoOpinion, "", nil
	}
	if name == "" {
		return NoOpinion, fmt.Sprintf("unknown node for user %q", a.User.GetName()), nil
	}
	allowed, reason := n.decide(name, &a)
	if allowed {
		return Allow, "", nil
	}
	return NoOpinion, reason, nil
}

// List implements Lister, but lists nothing: what a node may do depends on its pods.
func (n *Node) List(u user.Info, _ string) ([]rbacv1.PolicyRule, bool, error) {
	if _, isNode := NodeName(u); isNode {
		return nil, true, errors.New("node authorizer does not support user rule resolution")
	}
	return nil, false, nil
}

// The groups of the resources with rules of their own.
const (
	coreGroup         = ""
	coordinationGroup = "coordination.k8s.io"
	storageGroup      = "storage.k8s.io"
	resourceGroup     = "resource.k8s.io"
	certificatesGroup = "certificates.k8s.io"
)

// groupResource is schema.GroupResource with constant fields for the switch below.
type groupResource struct{ group, resource string }

func (n *Node) decide(node string, a *Attributes) (bool, string) {
	if a.IsResource {
		switch (groupResource{a.Group, a.Resource}) {
		case groupResource{coreGroup, "secrets"}, groupResource{coreGroup, "configmaps"}:
			return n.allowRead(node, a)
		case groupResource{coreGroup, "persistentvolumeclaims"}:
			if a.Subresource == "status" {
				return n.allowUpdateStatus(node, a)
			}
			return n.allowGet(node, a)
		case groupResource{coreGroup, "persistentvolumes"},
			groupResource{resourceGroup, "resourceclaims"},
			groupResource{storageGroup, "volumeattachments"}:
			return n.allowGet(node, a)
		case groupResource{coreGroup, "serviceaccounts"}:
			return n.serviceAccount(node, a)
		case groupResource{coreGroup, "nodes"}:
			return n.node(node, a)
		case groupResource{coreGroup, "pods"}:
			return n.pod(node, a)
		case groupResource{coordinationGroup, "leases"}:
			return n.lease(node, a)
		case groupResource{storageGroup, "csinodes"}:
			return n.csiNode(node, a)
		case groupResource{resourceGroup, "resourceslices"}:
			return n.resourceSlice(node, a)
		case groupResource{certificatesGroup, "podcertificaterequests"}:
			return n.podCertificateRequest(node, a)
		}
	}
	return RulesAllow(a, n.rules), ""
}

// allowRelated allows access to an object that a pod on the node refers to, directly or through a volume.
func (n *Node) allowRelated(node string, a *Attributes) (bool, string) {
	if a.Name == "" {
		return false, "No Object name found"
	}
	if !n.isRelated(node, a.Resource, a.Namespace, a.Name) {
		return false, unrelated(node)
	}
	return true, ""
}

func unrelated(node string) string {
	return fmt.Sprintf("no relationship found between node '%s' and this object", node)
}

func (n *Node) allowUpdateStatus(node string, a *Attributes) (bool, string) {
	if a.Verb != "update" && a.Verb != "patch" {
		return false, "can only get/update/patch this type"
	}
	return n.allowRelated(node, a)
}

func (n *Node) allowGet(node string, a *Attributes) (bool, string) {
	if a.Verb != "get" {
		return false, "can only get individual resources of this type"
	}
	if a.Subresource != "" {
		return false, "cannot get subresource"
	}
	return n.allowRelated(node, a)
}

// allowRead allows list and watch as well, but only of one object by name: agents watch single secrets.
func (n *Node) allowRead(node string, a *Attributes) (bool, string) {
	switch a.Verb {
	case "get", "list", "watch":
	default:
		return false, "can only read resources of this type"
	}
	if a.Subresource != "" {
		return false, "cannot read subresource"
	}
	if a.Namespace == "" {
		return false, "can only read namespaced object of this type"
	}
	return n.allowRelated(node, a)
}

func (n *Node) serviceAccount(node string, a *Attributes) (bool, string) {
	if a.Verb == "get" && a.Subresource == "" {
		return n.allowRead(node, a)
	}
	if a.Verb != "create" || a.Name == "" {
		return false, "can only create tokens for individual service accounts"
	}
	if a.Subresource != "token" {
		return false, "can only create token subresource of serviceaccount"
	}
	return n.allowRelated(node, a)
}

func (n *Node) lease(node string, a *Attributes) (bool, string) {
	if !isOwnObjectVerb(a.Verb) {
		return false, "can only get, create, update, patch, or delete a node lease"
	}
	if a.Namespace != corev1.NamespaceNodeLease {
		return false, fmt.Sprintf("can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
	}
	// A create does not have the name here; admission checks it.
	if a.Verb != "create" && a.Name != node {
		return false, "can only access node lease with the same name as the requesting node"
	}
	return true, ""
}

func (n *Node) csiNode(node string, a *Attributes) (bool, string) {
	switch a.Subresource {
	case "":
	case "status":
		return false, "CSINode status access requires CSIVolumeHealth feature"
	default:
		return false, "cannot authorize CSINode subresources"
	}
	if !isOwnObjectVerb(a.Verb) {
		return false, "can only get, create, update, patch, or delete a CSINode"
	}
	if a.Verb != "create" && a.Name != node {
		return false, "can only access CSINode with the same name as the requesting node"
	}
	return true, ""
}

// isOwnObjectVerb reports whether the verb is one that an agent needs for an object of its own.
func isOwnObjectVerb(verb string) bool {
	switch verb {
	case "get", "create", "update", "patch", "delete":
		return true
	}
	return false
}

func (n *Node) resourceSlice(node string, a *Attributes) (bool, string) {
	if a.Subresource != "" {
		return false, "cannot authorize ResourceSlice subresources"
	}
	switch a.Verb {
	case "create":
		// Admission checks that the new slice names this node.
		return true, ""
	case "get", "update", "patch", "delete":
		return n.allowRelated(node, a)
	case "watch", "list", "deletecollection":
		if selectsNode(a, node) {
			return true, ""
		}
		return false, "can only list/watch/deletecollection resourceslices with nodeName field selector"
	}
	return false, "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection"
}

func (n *Node) podCertificateRequest(node string, a *Attributes) (bool, string) {
	if a.Subresource != "" {
		return false, "nodes may not access the status subresource of PodCertificateRequests"
	}
	switch a.Verb {
	case "create":
		return true, ""
	case "get":
		return n.allowRelated(node, a)
	case "list", "watch":
		if selectsNode(a, node) {
			return true, ""
		}
		return false, "can only list/watch podcertificaterequests with nodeName field selector"
	}
	return false, fmt.Sprintf("nodes may not %s podcertificaterequests", a.Verb)
}

// node compares names rather than relations, because an agent reads its Node object before it creates it.
func (n *Node) node(node string, a *Attributes) (bool, string) {
	switch a.Subresource + ":" + a.Verb {
	case ":create", ":update", ":patch", "status:update", "status:patch":
		// Admission limits these to the node's own object.
		return true, ""
	case ":get", ":list", ":watch":
		switch a.Name {
		case node:
			return true, ""
		case "":
			return false, fmt.Sprintf("node '%s' cannot read all nodes, only its own Node object", node)
		}
		return false, fmt.Sprintf("node '%s' cannot read '%s', only its own Node object", node, a.Name)
	}
	return false, ""
}

func (n *Node) pod(node string, a *Attributes) (bool, string) {
	switch a.Subresource + ":" + a.Verb {
	case ":create", ":delete", "status:update", "status:patch", "eviction:create":
		// Admission limits these to mirror pods of the node and to pods on the node.
		return true, ""
	case ":get":
		return n.allowRelated(node, a)
	case ":list", ":watch":
		if selectsNode(a, node) {
			return true, ""
		}
		if a.Name != "" {
			return n.allowRelated(node, a)
		}
		return false, "can only list/watch pods with spec.nodeName field selector"
	}
	return false, ""
}

// selectsNode reports whether a field selector limits the request to objects of the node.
func selectsNode(a *Attributes, node string) bool {
	for _, r := range a.FieldSelector {
		if r.Field == "spec.nodeName" && r.Operator == selection.Equals && r.Value == node {
			return true
		}
	}
	return false
}
