package httpapi

import (
	_ "embed"
	"net/http"
)

// handler answers a request, or returns why not.
type handler func(s *server, w http.ResponseWriter, r *http.Request) error

// route is a row of the table of what is served under /v1. The last three are for
// the OpenAPI document, which is checked against them.
type route struct {
	method, path string
	handle       handler
	body         any         // The type of the body; nil for none.
	answers      map[int]any // The type of the answer by status; nil for no body.
	conflicts    bool        // It may be refused with 409.
}

// routes returns the table. What stands in it is in openapi.json.
func routes() []route {
	const topics, topic, groups, group = "/v1/topics", "/v1/topics/{topic}", "/v1/groups", "/v1/groups/{group}"
	const transaction = transactionsPath + "/{transaction}"
	return []route{
		{
			"POST", topic + "/produce", (*server).produce,
			ProduceRequest{},
			map[int]any{200: Result{}, 207: BatchResults{}},
			true,
		},
		{"GET", topic + "/consume", (*server).consume, nil, map[int]any{200: Consumed{}}, true},
		{"POST", topic + "/commit", (*server).commit, CommitRequest{}, map[int]any{200: Offsets{}}, true},
		{"POST", topic + "/seek", (*server).seek, SeekRequest{}, map[int]any{200: Offsets{}}, true},
		{"GET", topics, (*server).listTopics, nil, map[int]any{200: TopicList{}}, false},
		{"POST", topics, (*server).createTopic, CreateTopicRequest{}, map[int]any{201: TopicDescription{}}, true},
		{"GET", topic, (*server).describeTopic, nil, map[int]any{200: TopicDescription{}}, false},
		{"PATCH", topic, (*server).patchTopic, PatchTopicRequest{}, map[int]any{200: TopicDescription{}}, true},
		{"DELETE", topic, (*server).deleteTopic, nil, map[int]any{204: nil}, true},
		{"GET", groups, (*server).listGroups, nil, map[int]any{200: GroupList{}}, false},
		{"GET", group, (*server).describeGroup, nil, map[int]any{200: GroupDescription{}}, false},
		{"DELETE", group, (*server).deleteGroup, nil, map[int]any{204: nil}, true},
		{"POST", transactionsPath, (*server).beginTransaction, BeginRequest{}, map[int]any{200: BegunTransaction{}}, false},
		{
			"POST", transaction + "/produce", (*server).produceInTransaction,
			TransactionProduceRequest{},
			map[int]any{200: Result{}},
			true,
		},
		{
			"POST", transaction + "/offsets", (*server).commitInTransaction,
			TransactionOffsetsRequest{},
			map[int]any{200: TransactionOffsets{}},
			true,
		},
		{"POST", transaction + "/commit", (*server).commitTransaction, nil, map[int]any{200: EndedTransaction{}}, true},
		{"POST", transaction + "/abort", (*server).abortTransaction, nil, map[int]any{200: EndedTransaction{}}, true},
		{"GET", transaction, (*server).describeTransaction, nil, map[int]any{200: TransactionDescription{}}, false},
		{"GET", "/v1/doctor", (*server).doctor, nil, map[int]any{200: Doctor{}}, false},
		{"GET", "/v1/openapi.json", (*server).openAPI, nil, map[int]any{200: map[string]any{}}, false},
	}
}

// openAPIDocument describes the API. It is constant.
//
//go:embed openapi.json
var openAPIDocument string

func (s *server) openAPI(w http.ResponseWriter, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, []byte(openAPIDocument))
	return nil
}
