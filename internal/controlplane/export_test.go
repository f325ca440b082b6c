package controlplane

// RefusedBy is for tests.
var RefusedBy = refusedBy
