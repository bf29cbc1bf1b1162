// Package network is hop 12 of 12: objects become traffic. It has no code of its own; its parts are the folders below.
//
// Packages cni and podnetwork connect Pods, noderoutes and nodebridge connect nodes. Package service turns Services and
// EndpointSlices into nftables rules with package servicetable, networkpolicy does so with NetworkPolicies, and dns
// answers names. Package httpproxy is a reverse proxy; packages ingress and gateway, with gatewayplan, make rules for
// it from Ingresses and from the Gateway API, and share proxysync. Package nft builds nftables rules, conntrack deletes
// entries of the connection table, and nettest has helpers for tests.
package network
