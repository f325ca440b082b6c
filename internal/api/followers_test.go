package api_test

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestUnheard: a follower is unheard when its last connection is gone, until it fetches anew.
func TestUnheard(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		topic := w.createTopic("t", 1)
		w.replicate(topic)
		expect := func(what string, want time.Duration) {
			t.Helper()
			synctest.Wait()
			if got := w.services.Unheard(2); got != want {
				t.Errorf("%s: unheard for %v, want %v", what, got, want)
			}
		}
		expect("it never came", 0)
		one, two, client := w.connect(), w.connect(), w.connect()
		for range 3 {
			one.send(followOf(topic, 0, -1))
		}
		two.send(followOf(topic, 0, -1))
		client.write(topic, "v")
		expect("it fetches", 0)
		w.must(one.conn.Close())
		w.must(client.conn.Close())
		<-time.After(time.Second)
		expect("one of two is closed", 0)
		w.must(two.conn.Close())
		synctest.Wait()
		<-time.After(time.Second)
		expect("both are closed", time.Second)
		w.connect()
		<-time.After(time.Second)
		expect("it says nothing", 2*time.Second)
		w.connect().send(followOf(topic, 0, -1))
		expect("it fetches again", 0)
	})
}
