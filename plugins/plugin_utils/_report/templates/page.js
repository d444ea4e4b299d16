"use strict";
// Finds nodes by a part of their name. Without scripts the page is whole, only without this field.
(function () {
  var field = document.getElementById("find");
  if (!field) { return; }
  var nodes = Array.prototype.slice.call(document.querySelectorAll("[data-node]"));
  field.closest("[hidden]").hidden = false;
  field.addEventListener("input", function () {
    var wanted = field.value.trim().toLowerCase();
    nodes.forEach(function (node) {
      node.hidden = wanted !== "" && node.getAttribute("data-node").toLowerCase().indexOf(wanted) < 0;
    });
  });
})();
