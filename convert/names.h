// convert/names.h - which tensor of a checkpoint plays which role in sq's forward pass.
//
// Roles are named as in format.md, before stacking:
//     embed.words [V][D]   embed.positions [offset + positions][D]   embed.types [types][D]   embed.norm.gamma, embed.norm.beta [D]
//     layer.I.query.weight [D][D], .bias [D]; likewise layer.I.key, layer.I.value, layer.I.out; layer.I.up [F][D]; layer.I.down [D][F]
//     layer.I.out_norm.gamma, .beta [D]; layer.I.down_norm.gamma, .beta [D]
//     head.dense.weight [D][D], .bias [D]     classify: BERT's pooler, DistilBERT's pre_classifier, XLM-RoBERTa's classifier.dense
//     head.out.weight [labels][D], .bias      classify, tag: one row a label; answer: two rows
// A role that the model lacks (embed.types of DistilBERT, a head) does not exist.
#ifndef SQ_CONVERT_NAMES_H
#define SQ_CONVERT_NAMES_H

#include <map>
#include <string>
#include <vector>

#include "read-checkpoint.h"
#include "read-config.h"

namespace sq {

class tensor_names {
  public:
    // Finds every role's tensor and checks its shape; then every tensor must have a role or be known to be of no use here. Returns SQ_OK or SQ_E_FORMAT, with
    // the tensor's name and the shape that config.json asks for. `weights` keeps the tensors and must outlive this.
    int open(const checkpoint &weights, const model_config &config, message *why);

    const source_tensor *find(const std::string &role) const;            // null when the model has no such role
    const std::vector<std::string> &ignored() const { return ignored_; } // names of tensors of no use here, such as heads for training

  private:
    std::map<std::string, const source_tensor *> by_role_;
    std::vector<std::string> ignored_;
};

} // namespace sq

#endif
