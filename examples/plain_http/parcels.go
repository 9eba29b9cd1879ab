// Produce, consume with acknowledgements, and call a service: net/http and nothing else.
//
//	zbus serve
//	go run examples/plain_http/parcels.go http://127.0.0.1:15555
package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
)

var broker = "http://127.0.0.1:15555"

// ask makes one request. A status from 400 on is a refusal, and its body is a sentence that says why.
func ask(path string, headers map[string]string, body string) (*http.Response, string, error) {
	request, err := http.NewRequest("POST", broker+path, strings.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, "", err
	}
	defer reply.Body.Close()
	content, err := io.ReadAll(reply.Body)
	if err == nil && reply.StatusCode >= 400 {
		err = errors.New(string(content))
	}
	return reply, string(content), err
}

// produce stores a message. If no reply comes, send it again with the same key: it is stored once.
func produce(topic, body, key string) (string, error) {
	reply, _, err := ask("/"+topic, map[string]string{"Idempotency-Key": key}, body)
	if err != nil {
		return "", err
	}
	return reply.Header.Get("Durability"), nil
}

// consume gives each message of a group to work, and acknowledges it when work is done.
func consume(topic, group string, work func(body, retry string), waitMs int) error {
	for {
		path := fmt.Sprintf("/%s/%s?cmd=consume&timeout=%d", topic, group, waitMs)
		reply, body, err := ask(path, nil, "")
		if err != nil {
			return err
		}
		if reply.StatusCode == http.StatusNoContent {
			return nil // nothing came in that time; a worker would ask again
		}
		work(body, or(reply.Header.Get("Retry"), "0")) // how often it was handed out before
		offset, partition := reply.Header.Get("Offset"), or(reply.Header.Get("Partition"), "0")
		path = fmt.Sprintf("/%s/%s?cmd=ack&offset=%s&partition=%s", topic, group, offset, partition)
		if _, _, err := ask(path, nil, ""); err != nil {
			return err
		}
	}
}

// serve answers calls for ever. The answer goes to the session that called, under the call's id.
func serve(topic string, answer func(string) string) error {
	for {
		call, body, err := ask("/"+topic+"?cmd=consume&timeout=20000", nil, "")
		if err != nil {
			return err
		}
		if call.StatusCode == http.StatusNoContent {
			continue
		}
		to := map[string]string{"Recver": call.Header.Get("Sender"), "Id": call.Header.Get("Origin_id")}
		if _, _, err := ask("/?cmd=route", to, answer(body)); err != nil {
			return err
		}
	}
}

func or(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

func main() {
	if len(os.Args) > 1 {
		broker = os.Args[1]
	}
	must(ask("/Parcels/packing?cmd=declare&ack=true&group_lease=30s", nil, ""))
	key := make([]byte, 16)
	rand.Read(key)
	durability, err := produce("Parcels", "two chairs", fmt.Sprintf("%x", key))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("produced, durability", durability)
	packed := func(body, retry string) { fmt.Println("packed", body, retry) }
	if err := consume("Parcels", "packing", packed, 200); err != nil {
		log.Fatal(err)
	}

	must(ask("/Shout?cmd=declare&topic_mask=3", nil, ""))
	go serve("Shout", strings.ToUpper)
	answer := must(ask("/Shout", map[string]string{"Timeout": "5000"}, "hello"))
	fmt.Println("answered", answer)
}

func must(_ *http.Response, body string, err error) string {
	if err != nil {
		log.Fatal(err)
	}
	return body
}
